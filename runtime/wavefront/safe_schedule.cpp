// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/safe_schedule.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "runtime/wavefront/one_at_a_time.hpp"
#include "runtime/wavefront/task_graph.hpp"

namespace maestro {

namespace {

constexpr double endless = std::numeric_limits<double>::infinity();

/// A component's tasks as a separate workload; `tasks` are their indices in the original workload.
struct Part {
  Workload workload;
  std::vector<std::size_t> tasks;
};

std::vector<Part> parts_of(const Workload& workload) {
  const std::vector<std::size_t> component = components_of(workload);
  std::vector<std::size_t> part_of_root(component.size());
  std::vector<std::size_t> place(component.size());
  std::vector<Part> parts;
  for (std::size_t task = 0; task < component.size(); ++task) {
    if (component[task] == task) {
      part_of_root[task] = parts.size();
      parts.push_back({{workload.sections, workload.edges, {}}, {}});
    }
    Part& part = parts[part_of_root[component[task]]];
    place[task] = part.tasks.size();
    part.tasks.push_back(task);
    WorkloadTask copy = workload.tasks[task];
    for (TaskInput& input : copy.inputs) input.task = place[input.task];
    part.workload.tasks.push_back(std::move(copy));
  }
  return parts;
}

std::optional<Schedule> schedule_part(const Workload& part) {
  for (const Binding binding : {Binding::early, Binding::late}) {
    const PlanningGraph graph(part, binding);
    Simulator simulator(graph);
    DispatchRules rules = rigid_rules(graph, demand_order(part));
    for (const auto discipline : {DispatchRules::Discipline::section_order, DispatchRules::Discipline::list}) {
      rules.discipline = discipline;
      if (simulator.run(rules, endless) < endless) return simulator.schedule(rules);
    }
  }
  return one_at_a_time(part);
}

/// Returns an error with the first limit whose removal would allow a schedule.
Error why_not(const Workload& part) {
  const std::string sample = ", sample " + std::to_string(part.tasks.front().sample);
  for (const WorkloadSection& section : part.sections) {
    Workload eased = part;
    eased.sections[static_cast<std::size_t>(&section - part.sections.data())].max_in_flight = no_limit;
    if (section.max_in_flight == no_limit || !schedule_part(eased)) continue;
    return {ErrorCode::invalid_argument, "no schedule: section " + section.name + sample + ": max_in_flight " +
                                             std::to_string(section.max_in_flight) +
                                             " is too small for the tasks that must be in flight together"};
  }
  for (const WorkloadEdge& edge : part.edges) {
    Workload eased = part;
    eased.edges[static_cast<std::size_t>(&edge - part.edges.data())].slots = no_limit;
    if (edge.slots == no_limit || !schedule_part(eased)) continue;
    return {ErrorCode::invalid_argument, "no schedule: section " + part.sections[edge.to].name + sample + ": slots " +
                                             std::to_string(edge.slots) + " of the edge from " +
                                             part.sections[edge.from].name +
                                             " are too few for the inputs that must be there together"};
  }
  return {ErrorCode::invalid_argument, "no schedule: section " + part.sections[part.tasks.front().section].name +
                                           sample + ": slots and max_in_flight are too small, even for it alone"};
}

}  // namespace

std::vector<std::size_t> components_of(const Workload& workload) {
  std::vector<std::size_t> parent(workload.tasks.size());
  std::iota(parent.begin(), parent.end(), std::size_t{0});
  const auto root = [&](std::size_t task) {
    while (parent[task] != task) task = parent[task] = parent[parent[task]];
    return task;
  };
  for (std::size_t task = 0; task < workload.tasks.size(); ++task) {
    for (const TaskInput& input : workload.tasks[task].inputs) {
      const auto [low, high] = std::minmax({root(task), root(input.task)});
      parent[high] = low;
    }
  }
  for (std::size_t task = 0; task < parent.size(); ++task) parent[task] = root(task);
  return parent;
}

std::vector<int> demand_order(const Workload& workload) {
  const auto consumers = consumers_of(workload);
  std::vector<std::vector<int>> by_section(workload.sections.size());
  std::vector<char> placed(workload.tasks.size());
  std::vector<std::size_t> pending;
  for (std::size_t sink = 0; sink < workload.tasks.size(); ++sink) {
    if (!consumers[sink].empty()) continue;
    pending.push_back(sink);
    while (!pending.empty()) {
      const std::size_t task = pending.back();
      const auto& inputs = workload.tasks[task].inputs;
      const auto missing =
          std::find_if(inputs.begin(), inputs.end(), [&](const TaskInput& input) { return !placed[input.task]; });
      if (missing != inputs.end()) {
        pending.push_back(missing->task);
        continue;
      }
      pending.pop_back();
      if (!std::exchange(placed[task], 1)) by_section[workload.tasks[task].section].push_back(static_cast<int>(task));
    }
  }
  std::vector<int> order;
  for (const auto& tasks : by_section) order.insert(order.end(), tasks.begin(), tasks.end());
  return order;
}

DispatchRules rigid_rules(const PlanningGraph& graph, std::vector<int> order) {
  DispatchRules rules;
  rules.order = std::move(order);
  rules.theta.assign(graph.sections.size(), 0.0);
  rules.discipline = DispatchRules::Discipline::section_order;
  rules.foresee_slots = false;
  return rules;
}

Result<Schedule> serial_schedule(const Workload& workload) {
  Schedule whole;
  for (const Part& part : parts_of(workload)) {
    std::optional<Schedule> schedule = schedule_part(part.workload);
    if (!schedule) return why_not(part.workload);
    for (PlannedPass pass : schedule->passes) {
      pass.task = part.tasks[pass.task];
      pass.start_ms += whole.makespan_ms;
      pass.end_ms += whole.makespan_ms;
      whole.passes.push_back(pass);
    }
    whole.makespan_ms += schedule->makespan_ms;
  }
  return whole;
}

Result<Schedule> safe_schedule(const Workload& workload) {
  const PlanningGraph graph(workload, Binding::early);
  Simulator simulator(graph);
  const DispatchRules rules = rigid_rules(graph, demand_order(workload));
  if (simulator.run(rules, endless) < endless) return simulator.schedule(rules);
  return serial_schedule(workload);
}

}  // namespace maestro
