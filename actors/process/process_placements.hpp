// SPDX-License-Identifier: Apache-2.0
// The placements of a process: its replicas in a running job, and on rank 0 the processes that join or leave the job.
// The supervisor moves placements with it (SV-8), the control service lets processes join and leave.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "actors/process/built_process.hpp"
#include "actors/process/process_part.hpp"
#include "actors/process/start_thread.hpp"

namespace maestro {

/// The supervisor's thread calls it as a PlacementHost, the control service's threads call let_join() and let_leave(),
/// the main thread all other functions. Locks are released while a process starts.
class ProcessPlacements final : public PlacementHost {
 public:
  ProcessPlacements(ProcessPart& part, BuiltProcess& built) : part_(part), built_(built) {}

  [[nodiscard]] PlacementOptions options();
  /// Throws JobError if rank 0 could not start processes for an elastic section.
  void check_elastic() const;
  /// Spawns a replica at the start of the run.
  OwnActor begin(const ReplicaPlacement& at);
  /// Lets a process join or leave the run. Throws JobError with the reason if it cannot.
  [[nodiscard]] JoinTerms let_join(const ElasticJoin& request);
  std::string let_leave(ProcessId leaver);
  /// Refuses placements and starts of processes from now on; waits for the end of the current start.
  void close();

  std::vector<OwnActor> take(const MovePlacements& order) override;
  void remove(const ProcessInfo& lost, bool here) override;
  void left(ProcessId leaver) override;
  void start_again(ProcessId lost) override;
  void start_new(ProcessId joining, const std::string& section) override;
  void placed(ProcessId replacement) override;
  void begun(const std::string& line) override;
  void warn(const std::string& line) override;
  void note(const std::string& line) override { part_.console.note(line); }

 private:
  [[nodiscard]] PlacementAnswer query_supervisor(const caf::message& wanted) const;
  /// Queues a start; reports its failure to the supervisor.
  void add_start(ProcessId process, std::function<void()> start);

  ProcessPart& part_;
  BuiltProcess& built_;
  std::mutex mutex_;                   // guards the members below, as placements may move while the run ends
  std::vector<Placement> placements_;  // this process's replicas; used by the supervisor after the start
  bool closed_ = false;
  StartThread starts_;
};

}  // namespace maestro
