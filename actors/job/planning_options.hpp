// SPDX-License-Identifier: Apache-2.0
// Translates a resolved job into planner settings: policy, costs, devices and limits. Pure.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "actors/job/resolved_job.hpp"
#include "runtime/schedule/step_planner.hpp"

namespace maestro {

/// Returns whether some section is on emulated devices: the run then trains and stores nothing.
[[nodiscard]] bool has_emulated(const ResolvedJob& plan);
/// Returns the bounds of micro-batches in flight, which planner and replicas share.
[[nodiscard]] FlowLimits flow_limits(const ResolvedJob& plan);
[[nodiscard]] PolicyOptions policy_options(const ResolvedJob& plan);
[[nodiscard]] std::shared_ptr<const SchedulingPolicy> scheduling_policy(const ResolvedJob& plan);
/// Returns the costs of passes before any is measured: their FLOPs at the speed of their section's fastest replicas.
[[nodiscard]] CostModel planned_costs(const ResolvedJob& plan);
/// Returns a replica's costs, for a run on emulated devices.
[[nodiscard]] std::function<PassCost(std::span<const SampleRef>)> replica_costs(const ResolvedJob& plan,
                                                                                SectionId section,
                                                                                ReplicaIndex replica);
/// `plan` must outlive the planner.
[[nodiscard]] StepPlannerOptions planner_options(const ResolvedJob& plan);

}  // namespace maestro
