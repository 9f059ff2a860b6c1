// SPDX-License-Identifier: Apache-2.0
// Schedules that are sought when good ones deadlock: slower and slower, down to one sample at a time.
#pragma once

#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/wavefront/planning_graph.hpp"
#include "runtime/wavefront/schedule.hpp"
#include "runtime/wavefront/simulator/simulator.hpp"

namespace maestro {

/// By task: the smallest index of the tasks that it is linked with, directly or through others. Tasks of equal number
/// must be done together; others have nothing to do with each other.
[[nodiscard]] std::vector<std::size_t> components_of(const Workload& workload);

/// Section by section, tasks in the order in which they are needed when the last tasks of all paths are asked for one
/// by one; each section then works in the same order as the others, as far as sections share tasks' samples.
[[nodiscard]] std::vector<int> demand_order(const Workload& workload);

/// Rules that start every section's tasks in `demand_order`. They deadlock only where one task reserves slots that
/// another section needs for an earlier one.
[[nodiscard]] DispatchRules rigid_rules(const PlanningGraph& graph, std::vector<int> order);

/// One component after the other: legal whenever each of them fits the limits by itself. Error naming section, sample
/// and limit when one does not.
[[nodiscard]] Result<Schedule> serial_schedule(const Workload& workload);

/// rigid_rules, or else serial_schedule.
[[nodiscard]] Result<Schedule> safe_schedule(const Workload& workload);

}  // namespace maestro
