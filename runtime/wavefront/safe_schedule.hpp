// SPDX-License-Identifier: Apache-2.0
// Schedules for workloads that deadlock under faster rules: slower and slower, down to a single sample at a time.
#pragma once

#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/wavefront/planning_graph.hpp"
#include "runtime/wavefront/schedule.hpp"
#include "runtime/wavefront/simulator/simulator.hpp"

namespace maestro {

/// Returns, by task, the smallest index of the tasks that it is linked with, directly or through others: its component.
/// Components are independent of each other.
[[nodiscard]] std::vector<std::size_t> components_of(const Workload& workload);

/// Returns, section by section, tasks in the order of need when the last tasks of all paths run in turn; each section
/// then works in the same order as the others, as far as sections share samples.
[[nodiscard]] std::vector<int> demand_order(const Workload& workload);

/// Returns rules that start every section's tasks in `order`. With demand_order() they deadlock only if a task reserves
/// slots that another section needs for an earlier task.
[[nodiscard]] DispatchRules rigid_rules(const PlanningGraph& graph, std::vector<int> order);

/// Plans the components in turn: legal whenever each of them fits the limits by itself. Returns an Error with section,
/// sample and limit if a component does not.
[[nodiscard]] Result<Schedule> serial_schedule(const Workload& workload);

/// Returns the schedule of rigid_rules or, if they deadlock, serial_schedule.
[[nodiscard]] Result<Schedule> safe_schedule(const Workload& workload);

}  // namespace maestro
