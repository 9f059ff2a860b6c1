// SPDX-License-Identifier: Apache-2.0
// A process's part of a run: the job, the process's place in it, and the run's start point. Shared by the classes that
// build, run and end the part; owns nothing that runs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/job/placements.hpp"
#include "actors/launch/launcher.hpp"
#include "actors/process/process_run.hpp"
#include "actors/process/start_point.hpp"
#include "actors/run/record/run_record.hpp"
#include "actors/run/supervisor/supervised_run.hpp"
#include "actors/run/watch/watchdog.hpp"

namespace maestro {

/// Set up by the main thread before other threads use it, except the atomic members.
struct ProcessPart {
  ProcessPart(const ResolvedJob& job, Console& terminal, RunMemory& kept);

  [[nodiscard]] bool is_root() const { return place.rank == 0; }
  [[nodiscard]] bool several() const { return place.processes > 1; }
  [[nodiscard]] bool started_by_rank_0() const {
    return place.launcher == JobLauncher::maestro || plan.options.launch_info.starts_others();
  }
  /// Returns whether this process is rank 0, or has a trained section.
  [[nodiscard]] bool has_state() const;
  [[nodiscard]] bool joins_later() const { return !place.joins.empty(); }
  /// Returns whether a user has started this process to join the run.
  [[nodiscard]] bool by_hand() const { return joins_later() && std::getenv("MAESTRO_PARENT") == nullptr; }
  /// Returns the number of processes that may join the run after its start.
  [[nodiscard]] std::size_t joining() const { return hosts.size() - place.hosts.size(); }
  [[nodiscard]] bool recovering() const { return !record->recoveries.empty(); }
  /// Returns whether the run has started before, for a loss or for an earlier stage.
  [[nodiscard]] bool starts_again() const { return recovering() || memory.stages_done > 0; }
  [[nodiscard]] bool stores_checkpoints() const {
    return plan.train.checkpoint_at_end || plan.train.checkpoint_every > 0 || plan.train.archive_every > 0;
  }
  [[nodiscard]] bool placements_may_move() const;
  [[nodiscard]] bool recovers_in_place() const;
  /// Returns whether rank 0 starts replacement processes.
  [[nodiscard]] bool replacements_may_come() const { return started_by_rank_0() && recovers_in_place(); }
  /// Returns the replicas that this process builds.
  [[nodiscard]] std::vector<ReplicaPlacement> own_places() const;
  [[nodiscard]] std::vector<ReplicaPlacement> joining_places(const std::string& section, ProcessId joining_process,
                                                             const std::string& wanted) const;
  /// Returns the sections that have trained beyond the start point, with their step.
  [[nodiscard]] std::map<SectionId, StepId> trained_until() const;
  /// Returns the job and the other data that must be equal in all processes.
  [[nodiscard]] JobText job_text() const;
  [[nodiscard]] std::filesystem::path record_path() const;
  /// Returns "section 'student' replica 0".
  [[nodiscard]] std::string label_of(SectionId section, ReplicaIndex replica) const {
    return "section '" + plan.graph.node(section).name + "' replica " + std::to_string(replica.value());
  }
  /// Prints a note. Thread-safe.
  void note(const std::string& line) const {
    if (!plan.options.quiet) console.note("  note: " + line);
  }
  /// Limits the duration of a phase; the watchdog ends the process if the phase takes longer.
  void bound(std::string phase, std::chrono::milliseconds most) const {
    if (watchdog != nullptr) watchdog->limit(std::move(phase), most);
  }
  /// Names the part of the phase that begins, for the watchdog's line.
  void begin_part(std::string name) const {
    if (watchdog != nullptr) watchdog->part(std::move(name));
  }

  const ResolvedJob& plan;
  Console& console;
  RunMemory& memory;
  JobStart* job_start;  // null: a single process
  ProcessEnv place;
  std::vector<std::uint32_t> hosts;  // host of each process that the job may have
  ProcessId process;
  std::shared_ptr<RunRecord> record;  // RunMemory::record
  StartPoint start;
  RunClaim claim;  // rank 0 only
  RendezvousInfo rendezvous_info;
  std::atomic<std::uint64_t> current_step = 0;
  std::atomic<std::size_t> losses;     // recoveries of the run, also in place
  std::unique_ptr<Watchdog> watchdog;  // null before the run
  Launcher* launcher = nullptr;        // set during the run
};

}  // namespace maestro
