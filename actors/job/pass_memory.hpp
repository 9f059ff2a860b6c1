// SPDX-License-Identifier: Apache-2.0
// The memory of a job's passes, by dry passes.
#pragma once

#include "actors/job/job_probes.hpp"
#include "actors/job/resolved_job.hpp"

namespace maestro {

/// Sets `pass_bytes` of a placed plan, unless they are set: for each section the bytes of a rank's arena for a
/// micro-batch of the job's largest samples, which a dry pass over samples of the first step has (DY-2), in proportion
/// where those are shorter. Negative where `Section::runs_dry` is false, where the section is emulated, and where a dry
/// pass is impossible, which adds a note to the plan: a sample cannot be read, or memory is short.
void add_pass_bytes(ResolvedJob& plan);
/// Likewise; `values`: of ports, that were read for other layouts.
void add_pass_bytes(ResolvedJob& plan, PortValues& values);

}  // namespace maestro
