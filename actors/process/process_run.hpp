// SPDX-License-Identifier: Apache-2.0
// A process's part of a run: its devices, sections, actors and their end. Delegates to the launcher, the supervisor
// and the coordinator; owns every object that must outlive the actors.
//
// PR-1 (teardown order): threads that send messages to actors stop before the actors: the control service, the devices,
//       the snapshot writer, the network. Then the actor system ends. Objects are destroyed after that, users before
//       the objects they use: network, sections, devices.
// PR-2 (bounded failure): a failed run ends this process within a bounded time, whatever hangs.
// PR-3 (recovery): if a process is lost that rank 0 has started, all processes end their part of this start. The run
//       continues from its newest checkpoint, with the samples and losses of a resumed run. Surviving processes take
//       part in the next start (SV-13) with the data, plan and frozen weights that they have read; rank 0 starts the
//       other processes anew. If rank 0 cannot end its part in time, the run fails (PR-2); another process ends.
// PR-4 (rollback): after a rollback of the guard, the run continues in the same way from a checkpoint before the spike.
//       The checkpoint is first committed again with the new data cursor: if the machine stops, --resume continues from
//       it.
// PR-5 (stages): a stage of the job ends with a checkpoint and the orderly end of every process's part. All processes
//       then take part in the next start, with the plan of the next stage, whose sections begin with the checkpoint's
//       values and zero moments (TS-1); sections that the checkpoint lacks begin with their weights.
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

/// Data that a process keeps from one start of a run to the next.
struct RunMemory {
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  std::shared_ptr<RunRecord> record = std::make_shared<RunRecord>();
  std::shared_ptr<StepFigures> figures = std::make_shared<StepFigures>();
  std::string http;                     ///< address of the live page with its port; empty: none yet
  std::optional<RunIdentity> run;       ///< none before the first start
  std::optional<ShadowFolder> shadows;  ///< rank 0, if the run is on a single host and may recover
  bool again = false;                   ///< not rank 0: this process was part of an earlier start
  std::size_t stages_done = 0;          ///< stages of the job that have ended in this process
  bool enters_stage = false;            ///< this start follows the end of a stage
  cpu::CpuOperatorTable ops;
  FrozenSections frozen;
  std::unique_ptr<JobStart> start;     ///< null: a single process
  std::unique_ptr<Launcher> launcher;  ///< null before the first start; declared last, as its threads call `start`
};

class ProcessRun {
 public:
  /// All arguments must outlive the run.
  ProcessRun(const ResolvedJob& plan, Console& console, RunMemory& memory);
  ~ProcessRun();
  ProcessRun(const ProcessRun&) = delete;
  ProcessRun& operator=(const ProcessRun&) = delete;

  /// Checks everything that can be checked before the run starts: checkpoint, weights, output folder. Throws JobError.
  void prepare();
  /// Runs to the end and prints an error, if any. Returns nothing if another start follows (PR-3 to PR-5). If a job
  /// with several processes fails, does not return but exits with status 1 (PR-2).
  std::optional<RunResult> run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
