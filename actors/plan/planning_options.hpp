// SPDX-License-Identifier: Apache-2.0
// What a resolved job means for scheduling: policy, costs, devices and limits. Pure.
#pragma once

#include <memory>

#include "actors/plan/job_plan.hpp"
#include "runtime/schedule/step_planner.hpp"

namespace maestro {

/// Some section is on emulated devices: the run learns nothing and has no state to keep.
[[nodiscard]] bool has_emulated(const JobPlan& plan);
/// What bounds the micro-batches under way; the same for planner and replicas.
[[nodiscard]] FlowLimits flow_limits(const JobPlan& plan);
[[nodiscard]] std::shared_ptr<const SchedulingPolicy> scheduling_policy(const JobPlan& plan);
/// `plan` must outlive the planner.
[[nodiscard]] StepPlannerOptions planner_options(const JobPlan& plan);

}  // namespace maestro
