// SPDX-License-Identifier: Apache-2.0
// Steps of a workload file in virtual time, one after another, by the rules of a run.
#pragma once

#include <map>
#include <string>

#include "actors/job/job_rehearsal.hpp"

namespace maestro {

/// Times of passes beside those of the samples, by section: milliseconds that every pass takes more.
using PassConstants = std::map<std::string, double>;

/// Rehearses `steps` steps of all samples of an emulated workload's plan, and those that run ahead of the last of them.
/// Error `invalid_argument` for fewer than four.
[[nodiscard]] Result<SteadyRehearsal> rehearse_workload(const ResolvedJob& plan, std::int64_t steps,
                                                        const PassConstants& constants, const RehearsalChange& change);

}  // namespace maestro
