// SPDX-License-Identifier: Apache-2.0
// The sections of a resolved job, for probes of their passes.
#pragma once

#include <span>
#include <vector>

#include "actors/plan/job_plan.hpp"
#include "runtime/estimate/traced_run.hpp"
#include "sections/pass_probe.hpp"

namespace maestro {

/// Returns the section as the job describes it; its inputs from sources are the samples of the job's corpus. `plan`
/// outlives the result.
[[nodiscard]] ProbedSection probed_section(const JobPlan& plan, SectionId section);

/// Returns the samples of the first training steps of the job, without those that cannot be read.
[[nodiscard]] std::vector<TracedUnit> first_steps(const JobPlan& plan, std::size_t steps);

/// Returns the micro-batches into which a run cuts the samples of a step for a section, of all replicas.
[[nodiscard]] std::vector<MicroBatchPlan> batches_of(const JobPlan& plan, SectionId section,
                                                     std::span<const SampleRef> samples);

}  // namespace maestro
