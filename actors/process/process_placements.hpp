// SPDX-License-Identifier: Apache-2.0
// The placements of a process: its replicas in a running job, and on rank 0 the processes that come to the job or leave
// it. The supervisor has it move placements (SV-8), the control service lets processes join and leave.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "actors/process/built_process.hpp"
#include "actors/process/process_part.hpp"
#include "actors/process/start_thread.hpp"

namespace maestro {

/// The supervisor's thread uses it as a PlacementHost, the control service's threads call let_join() and let_leave(),
/// the main thread everything else. No lock is held while a process starts.
class ProcessPlacements final : public PlacementHost {
 public:
  ProcessPlacements(ProcessPart& part, BuiltProcess& built) : part_(part), built_(built) {}

  [[nodiscard]] PlacementOptions options();
  /// Throws JobError if rank 0 could start no process of an elastic section.
  void check_elastic() const;
  /// Spawns a replica at the start of the run.
  OwnActor begin(const ReplicaPlacement& at);
  /// Lets a process join the run, or leave it. Throws JobError: the reason why not.
  [[nodiscard]] JoinTerms let_join(const ElasticJoin& request);
  std::string let_leave(ProcessId leaver);
  /// From now on no placement is taken and no process started; waits for the end of a start.
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
  /// Queues a start; its failure goes to the supervisor.
  void add_start(ProcessId process, std::function<void()> start);

  ProcessPart& part_;
  BuiltProcess& built_;
  std::mutex mutex_;                   // guards the members below: placements move, and the run ends
  std::vector<Placement> placements_;  // of the replicas here; the supervisor's after the start
  bool closed_ = false;
  StartThread starts_;
};

}  // namespace maestro
