// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/planning_graph.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

namespace maestro {

namespace {

int int_of(std::int64_t limit) {
  return limit == no_limit ? unlimited : static_cast<int>(std::min<std::int64_t>(limit, unlimited));
}

}  // namespace

PlanningGraph::PlanningGraph(const Workload& workload, Binding how) : binding(how) {
  lay_out_sections(workload);
  lay_out_tasks(workload);
  sort_into_classes();
}

void PlanningGraph::lay_out_sections(const Workload& workload) {
  for (const WorkloadSection& given : workload.sections) {
    Section section;
    section.first_lane = static_cast<int>(lanes.size());
    section.lanes = static_cast<int>(given.replicas);
    section.has_backward = given.has_backward;
    section.max_in_flight = given.has_backward ? int_of(given.max_in_flight) : unlimited;
    const int number = static_cast<int>(sections.size());
    std::vector<int> replicas(static_cast<std::size_t>(section.lanes));
    std::iota(replicas.begin(), replicas.end(), 0);
    std::ranges::stable_sort(replicas, std::greater<>(), [&](int replica) { return given.speed(replica); });
    replica_lanes.resize(lanes.size() + replicas.size());
    double faster = 0;
    for (const int replica : replicas) {
      const double speed = given.speed(replica);
      const bool first = lanes.size() == static_cast<std::size_t>(section.first_lane);
      if (!first && speed < lanes.back().speed) faster = section.rate;
      replica_lanes[section.first_lane + replica] = static_cast<int>(lanes.size());
      lanes.push_back({number, 0, replica, speed, faster});
      section.rate += speed;
    }
    sections.push_back(section);
  }
  lay_out_devices(workload);
  for (const WorkloadEdge& given : workload.edges) {
    edges.push_back({static_cast<int>(given.from), static_cast<int>(given.to), int_of(given.slots), given.transfer_ms});
    sections[given.from].consumer_lanes += sections[given.to].lanes;
  }
}

void PlanningGraph::lay_out_devices(const Workload& workload) {
  std::map<std::vector<int>, int> known;  // sets that the workload names
  std::map<int, std::vector<int>> sets_on;
  for (int lane = 0; lane < static_cast<int>(lanes.size()); ++lane) {
    int set = static_cast<int>(device_sets.size());
    if (const auto& given = workload.sections[lanes[lane].section].devices; !given.empty()) {
      std::vector<int> devices = given[replica_of(lane)];
      std::ranges::sort(devices);
      const auto [found, fresh] = known.try_emplace(devices, set);
      if (fresh) {
        for (const int device : devices) sets_on[device].push_back(set);
      }
      set = found->second;
    }
    if (set == static_cast<int>(device_sets.size())) device_sets.emplace_back();
    device_sets[set].sections.push_back(lanes[lane].section);
    lanes[lane].devices = set;
  }
  std::vector<std::vector<int>> of_lanes;
  for (const DeviceSet& set : device_sets) of_lanes.push_back(set.sections);
  for (const auto& [devices, number] : known) {
    DeviceSet& set = device_sets[number];
    std::set<int> others;
    for (const int device : devices) others.insert(sets_on[device].begin(), sets_on[device].end());
    others.erase(number);
    set.overlapping.assign(others.begin(), others.end());
    for (const int other : others) {
      set.sections.insert(set.sections.end(), of_lanes[other].begin(), of_lanes[other].end());
    }
  }
  for (const Lane& lane : lanes) {
    if (device_sets[lane.devices].sections.size() > 1) sections[lane.section].shared = true;
  }
}

void PlanningGraph::lay_out_tasks(const Workload& workload) {
  std::vector<int> fan_out(workload.tasks.size());
  for (const WorkloadTask& task : workload.tasks) {
    for (const TaskInput& input : task.inputs) {
      ++fan_out[input.task];
      ++edges[input.edge].links;
    }
  }
  for (Edge& edge : edges) {
    if (edge.slots >= edge.links) edge.slots = unlimited;
  }
  int first_output = 0;
  for (std::size_t index = 0; index < workload.tasks.size(); ++index) {
    const WorkloadTask& given = workload.tasks[index];
    Section& section = sections[given.section];
    Task task;
    task.section = static_cast<int>(given.section);
    task.forward_ms = given.forward_ms;
    task.backward_ms = section.has_backward ? given.backward_ms : 0;
    task.in_begin = static_cast<int>(inputs.size());
    std::map<int, int> counts;
    for (const TaskInput& input : given.inputs) {
      inputs.push_back({static_cast<int>(input.edge), static_cast<int>(input.task)});
      if (edges[input.edge].slots != unlimited) ++counts[static_cast<int>(input.edge)];
    }
    task.in_end = static_cast<int>(inputs.size());
    task.need_begin = static_cast<int>(needs.size());
    for (const auto& [edge, count] : counts) {
      needs.push_back({edge, count, reserved_units, static_cast<int>(needs.size())});
      reserved_units += count;
    }
    task.need_end = static_cast<int>(needs.size());
    const bool several = std::any_of(counts.begin(), counts.end(), [](const auto& entry) { return entry.second > 1; });
    const bool joint = counts.size() > 1;
    task.early = several || (binding == Binding::mixed && joint) || (binding == Binding::early && !counts.empty());
    task.out_begin = task.out_end = first_output;
    first_output += fan_out[index];
    task.backward_needs = section.has_backward ? 1 + fan_out[index] : 0;
    section.tasks++;
    section.work_ms += task.forward_ms + task.backward_ms;
    section.mean_forward_ms += task.forward_ms;
    passes += section.has_backward ? 2 : 1;
    tasks.push_back(task);
  }
  outputs.resize(first_output);
  for (std::size_t index = 0; index < tasks.size(); ++index) {
    for (const Link& link : inputs_of(index)) {
      outputs[tasks[link.task].out_end++] = {link.edge, static_cast<int>(index)};
    }
  }
  int first_task = 0;
  for (Section& section : sections) {
    section.first_task = first_task;
    first_task += section.tasks;
    if (section.tasks > 0) section.mean_forward_ms /= section.tasks;
  }
}

void PlanningGraph::sort_into_classes() {
  std::map<Class, std::vector<std::size_t>> members;
  for (std::size_t index = 0; index < tasks.size(); ++index) {
    const Task& task = tasks[index];
    Class kind;
    kind.section = task.section;
    kind.fed = task.in_begin != task.in_end;
    kind.limited = task.need_begin != task.need_end;
    kind.early = task.early;
    std::map<int, int> promised;
    for (const Link& link : outputs_of(index)) {
      if (edges[link.edge].slots == unlimited) continue;
      const Task& consumer = tasks[link.task];
      if (consumer.early) {
        kind.binds = true;
      } else if (consumer.need_end - consumer.need_begin > 1) {
        kind.joins = true;
      } else {
        ++promised[link.edge];
      }
    }
    for (const auto& [edge, count] : promised) kind.promises.push_back({edge, count, 0, 0});
    members[kind].push_back(index);
  }
  for (const auto& [kind, indices] : members) {
    Section& home = sections[kind.section];
    if (home.classes++ == 0) home.first_class = static_cast<int>(classes.size());
    for (const std::size_t index : indices) tasks[index].task_class = static_cast<int>(classes.size());
    classes.push_back(kind);
  }
}

}  // namespace maestro
