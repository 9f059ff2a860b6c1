// SPDX-License-Identifier: Apache-2.0
// Rehearses steps of a workload file in virtual time, one after another, by the rules of a run.
#pragma once

#include <map>
#include <string>

#include "actors/job/job_rehearsal.hpp"

namespace maestro {

/// Constant overhead per pass in milliseconds, by section.
using PassConstants = std::map<std::string, double>;

/// Rehearses `steps` steps with all samples of an emulated workload's plan, and the steps that run ahead of the last.
/// Error `invalid_argument` for fewer than four steps.
[[nodiscard]] Result<SteadyRehearsal> rehearse_workload(const ResolvedJob& plan, std::int64_t steps,
                                                        const PassConstants& constants, const RehearsalChange& change);

}  // namespace maestro
