// SPDX-License-Identifier: Apache-2.0
// The memory of a job's passes, by dry passes.
#pragma once

#include "actors/job/job_probes.hpp"
#include "actors/job/resolved_job.hpp"

namespace maestro {

/// Sets `pass_bytes` of a placed plan unless they are set: for each section the bytes that a micro-batch of the job's
/// largest samples takes in a rank's arena. They come from a dry pass over samples of the first step (DY-2), scaled up
/// if these samples are shorter. The value is negative if `Section::runs_dry` is false, if the section is emulated, or
/// if a dry pass is impossible (a sample cannot be read, or memory is short), which also adds a note to the plan.
void add_pass_bytes(ResolvedJob& plan);
/// Does the same with port values that were read for other layouts.
void add_pass_bytes(ResolvedJob& plan, PortValues& values);

}  // namespace maestro
