// SPDX-License-Identifier: Apache-2.0
// The made samples of a traced run, for rehearsals of the run and of its variants.
#pragma once

#include <string>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "runtime/rehearsal/traced_run.hpp"

namespace maestro {

/// Returns units of a traced run with the samples that the job's generator makes for them: prompts by the job, lengths
/// by the trace, versions by the job's staleness. Throws JobError, naming `trace` and the step, if the samples do not
/// fit the job's prompts.
[[nodiscard]] std::vector<TracedUnit> with_rollouts(const ResolvedJob& plan, std::vector<TracedUnit> units,
                                                    const std::string& trace);

}  // namespace maestro
