// SPDX-License-Identifier: Apache-2.0
// The part of a run's start that `check` covers: the files of its models and its first batch.
#include <filesystem>

#include "actors/job/data_source.hpp"
#include "actors/job/planning_options.hpp"
#include "actors/process/model_folders.hpp"
#include "actors/process/process_state.hpp"
#include "runtime/core/scratch_folder.hpp"
#include "runtime/schedule/step_planner.hpp"

namespace maestro {

namespace {

/// Draws and plans the first batch of a run.
void check_first_batch(const ResolvedJob& plan, const StartPoint& start) {
  const auto steps = static_cast<std::uint64_t>(plan.train.steps);
  if (start.first_step > steps) return;
  const auto seed = static_cast<std::uint64_t>(plan.train.seed);
  const BatchDrawer drawer(plan.corpus, Sampler(seed, plan.corpus->sources()));
  const StepId step(start.first_step);
  const BatchMetadata batch = drawer.training(step, plan.train.global_batch, start.cursor);
  const std::int64_t most = plan.max_bad_samples - static_cast<std::int64_t>(plan.corpus->left_out());
  if (const auto refusal = too_many_left_out(batch.left_out, most)) throw JobError(*refusal);
  const bool all_met =
      start.first_step == steps || static_cast<std::uint64_t>(plan.train.global_batch) >= epoch_positions(plan);
  if (batch.samples.empty() && all_met) throw JobError(nothing_to_train_on(step, batch.left_out));
  const Result<PlannedStep> planned = StepPlanner(planner_options(plan)).plan(step, Pass::train, batch.samples, 1.0);
  if (!planned) throw JobError("planning step " + std::to_string(step.value()) + ": " + planned.error().message);
}

}  // namespace

void check_start(const ResolvedJob& plan, const StartPoint& start) {
  const ScratchFolder scratch(std::filesystem::temp_directory_path(), "maestro-check",
                              "set TMPDIR to a folder that can be written");
  (void)prepare_model_files(plan, start, scratch.path());
  check_first_batch(plan, start);
}

}  // namespace maestro
