// SPDX-License-Identifier: Apache-2.0
// The part of a section's context that its job gives: the same for the section on the meta device, by which the job is
// planned and checked, and for the replicas that run.
#pragma once

#include <cstdint>

#include "actors/job/resolved_job.hpp"

namespace maestro {

/// Leaves what depends on the place: tables, ranks, and whether the section is a meta section.
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
  return context;
}

}  // namespace maestro
