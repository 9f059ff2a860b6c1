// SPDX-License-Identifier: Apache-2.0
// State of a process's part of a run, shared by process_run.cpp (the main path and the end) and process_setup.cpp (the
// actors and their options). Connects its members, which do the work.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "actors/job/rollout_source.hpp"
#include "actors/process/built_process.hpp"
#include "actors/process/process_part.hpp"
#include "actors/process/process_placements.hpp"
#include "actors/process/process_run.hpp"
#include "actors/process/recovery_path.hpp"
#include "actors/process/run_outputs.hpp"
#include "actors/process/run_services.hpp"
#include "actors/process/stop_policy.hpp"
#include "actors/run/coordinator/coordinator.hpp"
#include "actors/run/supervisor/supervisor.hpp"

namespace maestro {

struct ProcessRun::State {
  State(const ResolvedJob& job, Console& console, RunMemory& memory) : part(job, console, memory) {}

  ProcessPart part;
  std::shared_ptr<OutcomePromise> outcome = std::make_shared<OutcomePromise>();  // shared with the supervisor
  BuiltProcess built{part};
  ProcessPlacements placements{part, built};
  RunOutputs outputs{part, built.trace()};
  RunServices services{part, built, placements};
  StopPolicy stop_policy{part, built, services};
  RecoveryPath recovery{part, {built, placements, outputs, stop_policy, [this] { stop(); }}};

  // Before the run starts.

  void check_surroundings() const;
  /// Makes room for checkpoints in memory, on rank 0 at the first start. Throws JobError if train.shadow_every requires
  /// room that is missing.
  void make_shadows();
  void print_header() const;
  /// Prints the sections' models, for `check`.
  void print_models() const;
  /// Prints the memory estimate, for `check`.
  void print_memory() const;
  /// Returns " on host b" in jobs on several hosts.
  [[nodiscard]] std::string on_host(std::uint32_t host) const;

  // Start; in process_setup.cpp except the first three.

  /// Brings the processes together, and connects this process's supervisor to rank 0's supervisor.
  void join_job();
  [[nodiscard]] std::optional<RunResult> try_to_join();
  void begin();
  void open_actors();
  [[nodiscard]] SupervisorOptions supervisor_options();
  void route_child_ends();
  [[nodiscard]] caf::actor find_root();
  [[nodiscard]] std::string build_name() const;
  void spawn_coordinator(LocalActors& local);
  [[nodiscard]] RolloutOptions rollout_options(const DataSourceOptions& data) const;
  [[nodiscard]] CoordinatorOptions coordinator_options(const caf::actor& source);
  void spawn_replicas(LocalActors& local);
  /// Spawns the actors of this process, and sends their addresses through its supervisor.
  void introduce();

  // End.

  /// Stops everything, in the order of PR-1. Idempotent.
  void stop();
  /// Ends this process's part of a stage that another one follows (PR-5).
  void end_stage();
  RunResult succeed(const RunOutcome& ended);
  int fail(const RunOutcome& ended);
  void close_failed_start(const std::string& problem);
};

/// Throws JobError for problems that a run would meet between its plan and its first step, for `check`. Leaves no
/// files.
void check_start(const ResolvedJob& plan, const StartPoint& start);

}  // namespace maestro
