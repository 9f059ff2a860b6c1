// SPDX-License-Identifier: Apache-2.0
// Describes learning rates over a run: schedules that the run does not complete, and rates that jump at a resume.
#pragma once

#include <string>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "runtime/checkpoint/manifest.hpp"

namespace maestro {

/// Returns the steps that visit the training samples `epochs` times; the last step may begin another epoch. Throws
/// JobError for more steps than a run can have.
[[nodiscard]] std::int64_t steps_of_epochs(const TrainConfig& train, std::uint64_t samples);

/// Returns a line for each trained section whose warm-up lasts until the run's end, and for each whose decay ends
/// before the run.
[[nodiscard]] std::vector<std::string> schedule_notes(const ResolvedJob& plan);

/// Returns a line for each trained section whose learning rate jumps at the resume: the changed settings move it by
/// more than a tenth from the rate of the checkpoint's last step. The line has both rates, and the key that keeps the
/// earlier schedule.
[[nodiscard]] std::vector<std::string> rate_jumps(const ResolvedJob& plan, const Manifest& stored);

}  // namespace maestro
