// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/arrival.hpp"

#include <limits>
#include <vector>

#include "runtime/wavefront/safe_schedule.hpp"

namespace maestro {

namespace {

std::vector<int> order_of_arrival(const PlanningGraph& graph) {
  std::vector<int> order(graph.tasks.size());
  std::vector<int> next;
  for (const PlanningGraph::Section& section : graph.sections) next.push_back(section.first_task);
  for (std::size_t task = 0; task < graph.tasks.size(); ++task) {
    order[next[graph.tasks[task].section]++] = static_cast<int>(task);
  }
  return order;
}

std::vector<int> round_robin(const PlanningGraph& graph, const std::vector<int>& order) {
  std::vector<int> replica(graph.tasks.size());
  for (const PlanningGraph::Section& section : graph.sections) {
    for (int n = 0; n < section.tasks; ++n) replica[order[section.first_task + n]] = n % section.lanes;
  }
  return replica;
}

}  // namespace

Result<Schedule> ArrivalPolicy::plan(const Workload& workload) const {
  const PlanningGraph graph(workload, Binding::early);
  Simulator simulator(graph);
  DispatchRules rules = rigid_rules(graph, order_of_arrival(graph));
  rules.fixed_lane = round_robin(graph, rules.order);
  for (const auto discipline : {DispatchRules::Discipline::lane_order, DispatchRules::Discipline::section_order}) {
    rules.discipline = discipline;
    constexpr double endless = std::numeric_limits<double>::infinity();
    if (simulator.run(rules, endless) < endless) return simulator.schedule(rules);
  }
  return safe_schedule(workload);
}

}  // namespace maestro
