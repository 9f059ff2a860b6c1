// SPDX-License-Identifier: Apache-2.0
// Makes the part of a section's context that depends on the job. The replicas and the section on the meta device, which
// serves to plan and check the job, have the same.
#pragma once

#include <cstdint>

#include "actors/job/resolved_job.hpp"

namespace maestro {

/// Returns a context without the parts that depend on the place: tables, ranks, and whether it is a meta section.
[[nodiscard]] inline SectionContext planned_context(const ResolvedJob& plan, const PlannedSection& planned,
                                                    const GraphNode& node) {
  SectionContext context;
  context.name = planned.config.name;
  context.seed = static_cast<std::uint64_t>(plan.train.seed);
  context.precision = planned.config.precision;
  context.trained = node.trained();
  context.passes_gradient = node.role == Role::passing;
  context.recompute = planned.config.recompute;
  context.moments = planned.config.optimizer.moments;
  context.lora = planned.config.lora;
  context.stage = planned.stage;
  context.reading = node.reading;
  return context;
}

}  // namespace maestro
