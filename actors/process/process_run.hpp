// SPDX-License-Identifier: Apache-2.0
// A process's part of a run: its devices, sections, actors and their end. Delegates to the launcher, the supervisor
// and the coordinator; owns every object that must outlive the actors.
//
// PR-1 (teardown order): threads that send messages to actors stop before the actors: the control service, the devices,
//       the snapshot writer, the network. Then the actor system ends. Objects are destroyed after that, users before
//       the objects they use: network, sections, devices.
// PR-2 (bounded failure): a failed run ends this process within a bounded time, whatever hangs.
// PR-3 (recovery): where rank 0 has started the other processes and one of them is lost, all end their part of this
//       start. The run goes on from its newest checkpoint, with the samples and losses of a resumed run. Processes that
//       live take part in the next start (SV-13), with what they have read: data, plan and frozen weights. The others
//       are started anew. If rank 0 cannot end its part in time, the run fails (PR-2); another process ends.
// PR-4 (rollback): where the guard goes back, the run goes on likewise from a checkpoint before the spike, which is
//       committed once more with the new cursor of the data first: whenever the machine stops, --resume goes on with
//       it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "actors/job/resolved_job.hpp"
#include "actors/process/job_start.hpp"
#include "actors/process/replica_builder.hpp"
#include "actors/process/shadow_folder.hpp"
#include "actors/run/record/run_result.hpp"
#include "actors/run/record/step_figures.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/observe/console.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"

namespace maestro {

/// What a run keeps from one start of its processes to the next.
struct RunMemory {
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  std::shared_ptr<RunRecord> record = std::make_shared<RunRecord>();
  std::shared_ptr<StepFigures> figures = std::make_shared<StepFigures>();
  std::string http;                     ///< address of the live page with its port; empty: none yet
  std::optional<RunIdentity> run;       ///< after the first start
  std::optional<ShadowFolder> shadows;  ///< on rank 0 of a run on a single host that may recover
  bool again = false;                   ///< this process, which is not rank 0, was part of an earlier start
  cpu::CpuOperatorTable ops;
  FrozenSections frozen;
  std::unique_ptr<JobStart> start;     ///< null: this process is alone
  std::unique_ptr<Launcher> launcher;  ///< after the first start; destroyed before `start`, which its threads call
};

class ProcessRun {
 public:
  /// All arguments must outlive the run.
  ProcessRun(const ResolvedJob& plan, Console& console, RunMemory& memory);
  ~ProcessRun();
  ProcessRun(const ProcessRun&) = delete;
  ProcessRun& operator=(const ProcessRun&) = delete;

  /// Checks all that can be checked before the run starts: checkpoint, weights, output folder. Throws JobError.
  void prepare();
  /// Runs to the end and prints an error, if any. Returns nothing where another start follows (PR-3, PR-4).
  /// Does not return from a failed run of a job of several processes: it exits with status 1 (PR-2).
  std::optional<RunResult> run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
