// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/equal_parts.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace maestro {

namespace {

using TasksOfSections = std::vector<std::vector<std::size_t>>;

/// Returns the tasks of each section in order.
TasksOfSections by_section(const Workload& workload) {
  TasksOfSections tasks(workload.sections.size());
  for (std::size_t task = 0; task < workload.tasks.size(); ++task) {
    tasks[workload.tasks[task].section].push_back(task);
  }
  return tasks;
}

/// Returns whether the tasks of each part take as long as the first part's, and have the like inputs.
bool equal_tasks(const Workload& workload, const TasksOfSections& by_section, std::size_t parts) {
  std::vector<std::size_t> place(workload.tasks.size());  // in the task's section
  for (const std::vector<std::size_t>& tasks : by_section) {
    for (std::size_t at = 0; at < tasks.size(); ++at) place[tasks[at]] = at;
  }
  const auto part_and_place = [&](std::size_t task) {
    const std::size_t in_part = by_section[workload.tasks[task].section].size() / parts;
    return std::pair(place[task] / in_part, place[task] % in_part);
  };
  for (const std::vector<std::size_t>& tasks : by_section) {
    for (const std::size_t task : tasks) {
      const auto [part, local] = part_and_place(task);
      const WorkloadTask& own = workload.tasks[task];
      const WorkloadTask& first = workload.tasks[tasks[local]];
      const auto alike = [&, part = part](const TaskInput& input, const TaskInput& of_first) {
        return input.edge == of_first.edge &&
               part_and_place(input.task) == std::pair(part, part_and_place(of_first.task).second);
      };
      if (own.forward_ms != first.forward_ms || own.backward_ms != first.backward_ms) return false;
      if (!std::ranges::equal(own.inputs, first.inputs, alike)) return false;
    }
  }
  return true;
}

/// Returns whether lanes of each part have the speeds of the first part's, and share devices as these do.
bool equal_lanes(const Workload& workload, std::int64_t parts) {
  std::vector<std::map<int, int>> numbers(static_cast<std::size_t>(parts));  // of a part's devices, as they come
  std::set<int> seen;
  for (const WorkloadSection& section : workload.sections) {
    const std::int64_t lanes = section.replicas / parts;
    for (std::int64_t lane = 0; lane < section.replicas; ++lane) {
      if (section.speed(lane) != section.speed(lane % lanes)) return false;
      if (section.devices.empty()) continue;
      const auto& own = section.devices[static_cast<std::size_t>(lane)];
      const auto& first = section.devices[static_cast<std::size_t>(lane % lanes)];
      if (own.size() != first.size()) return false;
      std::map<int, int>& of_part = numbers[static_cast<std::size_t>(lane / lanes)];
      for (std::size_t at = 0; at < own.size(); ++at) {
        const auto [number, fresh] = of_part.try_emplace(own[at], static_cast<int>(of_part.size()));
        if (fresh && !seen.insert(own[at]).second) return false;  // of another part
        if (number->second != numbers.front().at(first[at])) return false;
      }
    }
  }
  return true;
}

}  // namespace

EqualParts::EqualParts(const Workload& workload, const TasksOfSections& by_section, std::int64_t count)
    : count_(count) {
  part_.sections = workload.sections;
  part_.edges = workload.edges;
  for (WorkloadSection& section : part_.sections) {
    section.replicas /= count;
    const auto lanes = static_cast<std::size_t>(section.replicas);
    if (!section.devices.empty()) section.devices.resize(lanes);
    if (!section.speeds.empty()) section.speeds.resize(lanes);
  }
  std::vector<std::size_t> seen(by_section.size());  // tasks of each section
  std::map<std::size_t, std::size_t> number;         // of a task in the part
  for (std::size_t task = 0; task < workload.tasks.size(); ++task) {
    const std::vector<std::size_t>& tasks = by_section[workload.tasks[task].section];
    const std::size_t in_part = tasks.size() / static_cast<std::size_t>(count);
    const std::size_t place = seen[workload.tasks[task].section]++;
    if (place >= in_part) continue;
    number[task] = part_.tasks.size();
    for (TaskInput& input : part_.tasks.emplace_back(workload.tasks[task]).inputs) input.task = number.at(input.task);
    std::vector<std::size_t>& alike = tasks_.emplace_back();
    for (std::size_t at = place; at < tasks.size(); at += in_part) alike.push_back(tasks[at]);
  }
}

std::optional<EqualParts> EqualParts::of(const Workload& workload) {
  const TasksOfSections tasks = by_section(workload);
  std::int64_t common = 0;
  for (std::size_t section = 0; section < tasks.size(); ++section) {
    common = std::gcd(common, std::gcd(workload.sections[section].replicas, std::ssize(tasks[section])));
  }
  for (std::int64_t count = common; count > 1; --count) {
    if (common % count != 0 || !equal_lanes(workload, count)) continue;
    if (equal_tasks(workload, tasks, static_cast<std::size_t>(count))) return EqualParts(workload, tasks, count);
  }
  return std::nullopt;
}

Schedule EqualParts::repeated(const Schedule& of_part) const {
  Schedule whole;
  whole.makespan_ms = of_part.makespan_ms;
  whole.passes.reserve(of_part.passes.size() * static_cast<std::size_t>(count_));
  for (const PlannedPass& pass : of_part.passes) {
    const std::int64_t lanes = part_.sections[part_.tasks[pass.task].section].replicas;
    for (std::int64_t part = 0; part < count_; ++part) {
      PlannedPass& made = whole.passes.emplace_back(pass);
      made.task = tasks_[pass.task][static_cast<std::size_t>(part)];
      made.replica += part * lanes;
    }
  }
  return whole;
}

}  // namespace maestro
