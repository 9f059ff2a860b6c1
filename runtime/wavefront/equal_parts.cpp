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
using LanesOfParts = std::vector<std::vector<std::int64_t>>;  // lanes of a section's parts

/// Returns the tasks of each section in order.
TasksOfSections by_section(const Workload& workload) {
  TasksOfSections tasks(workload.sections.size());
  for (std::size_t task = 0; task < workload.tasks.size(); ++task) {
    tasks[workload.tasks[task].section].push_back(task);
  }
  return tasks;
}

/// Returns whether each part's tasks take as long as the first part's, and have equivalent inputs.
bool equal_tasks(const Workload& workload, const TasksOfSections& by_section, std::size_t parts) {
  std::vector<std::size_t> place(workload.tasks.size());  // place in the task's section
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

/// Returns the lanes of a section by part: the lanes of each speed are divided among the parts in order. Returns
/// nothing if they cannot be divided, or if a part's lanes have other speeds than the first part's.
std::optional<LanesOfParts> lanes_of_parts(const WorkloadSection& section, std::int64_t parts) {
  std::map<double, std::vector<std::int64_t>> by_speed;
  for (std::int64_t lane = 0; lane < section.replicas; ++lane) by_speed[section.speed(lane)].push_back(lane);
  LanesOfParts made(static_cast<std::size_t>(parts));
  for (const auto& [speed, lanes] : by_speed) {
    if (std::ssize(lanes) % parts != 0) return std::nullopt;
    const std::size_t in_part = lanes.size() / made.size();
    for (std::size_t at = 0; at < lanes.size(); ++at) made[at / in_part].push_back(lanes[at]);
  }
  const auto same_speed = [&](std::int64_t one, std::int64_t other) {
    return section.speed(one) == section.speed(other);
  };
  for (std::vector<std::int64_t>& lanes : made) {
    std::ranges::sort(lanes);
    if (!std::ranges::equal(lanes, made.front(), same_speed)) return std::nullopt;
  }
  return made;
}

/// Returns the lanes of every section by part; nothing if the parts are not equal in their speeds, or share devices in
/// other ways.
std::optional<std::vector<LanesOfParts>> equal_lanes(const Workload& workload, std::int64_t parts) {
  std::vector<LanesOfParts> all;
  std::vector<std::map<int, int>> numbers(static_cast<std::size_t>(parts));  // device numbers of a part, as they come
  std::set<int> seen;
  for (const WorkloadSection& section : workload.sections) {
    auto lanes = lanes_of_parts(section, parts);
    if (!lanes) return std::nullopt;
    all.push_back(*std::move(lanes));
    if (section.devices.empty()) continue;
    const auto devices_of = [&](std::size_t part, std::size_t at) -> const std::vector<int>& {
      return section.devices[static_cast<std::size_t>(all.back()[part][at])];
    };
    for (std::size_t part = 0; part < numbers.size(); ++part) {
      for (std::size_t lane = 0; lane < all.back()[part].size(); ++lane) {
        const std::vector<int>& own = devices_of(part, lane);
        const std::vector<int>& first = devices_of(0, lane);
        if (own.size() != first.size()) return std::nullopt;
        for (std::size_t at = 0; at < own.size(); ++at) {
          const auto [number, fresh] = numbers[part].try_emplace(own[at], static_cast<int>(numbers[part].size()));
          if (fresh && !seen.insert(own[at]).second) return std::nullopt;  // another part has it
          if (number->second != numbers.front().at(first[at])) return std::nullopt;
        }
      }
    }
  }
  return all;
}

}  // namespace

EqualParts::EqualParts(const Workload& workload, const TasksOfSections& by_section, std::vector<LanesOfParts> lanes)
    : count_(std::ssize(lanes.front())), lanes_(std::move(lanes)) {
  part_.edges = workload.edges;
  for (std::size_t at = 0; at < workload.sections.size(); ++at) {
    const std::vector<std::int64_t>& own = lanes_[at].front();
    const WorkloadSection& whole = workload.sections[at];
    WorkloadSection& section = part_.sections.emplace_back(whole);
    section.replicas = std::ssize(own);
    section.devices.clear();
    section.speeds.clear();
    for (const std::int64_t lane : own) {
      if (!whole.devices.empty()) section.devices.push_back(whole.devices[static_cast<std::size_t>(lane)]);
      if (!whole.speeds.empty()) section.speeds.push_back(whole.speed(lane));
    }
  }
  std::vector<std::size_t> seen(by_section.size());  // tasks seen in each section
  std::map<std::size_t, std::size_t> number;         // number of a task in the part
  for (std::size_t task = 0; task < workload.tasks.size(); ++task) {
    const std::vector<std::size_t>& tasks = by_section[workload.tasks[task].section];
    const std::size_t in_part = tasks.size() / static_cast<std::size_t>(count_);
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
    if (common % count != 0) continue;
    auto lanes = equal_lanes(workload, count);
    if (!lanes || !equal_tasks(workload, tasks, static_cast<std::size_t>(count))) continue;
    return EqualParts(workload, tasks, *std::move(lanes));
  }
  return std::nullopt;
}

Schedule EqualParts::repeated(const Schedule& of_part) const {
  Schedule whole;
  whole.makespan_ms = of_part.makespan_ms;
  whole.passes.reserve(of_part.passes.size() * static_cast<std::size_t>(count_));
  for (const PlannedPass& pass : of_part.passes) {
    const LanesOfParts& lanes = lanes_[part_.tasks[pass.task].section];
    for (std::size_t part = 0; part < lanes.size(); ++part) {
      PlannedPass& made = whole.passes.emplace_back(pass);
      made.task = tasks_[pass.task][part];
      made.replica = lanes[part][static_cast<std::size_t>(pass.replica)];
    }
  }
  return whole;
}

}  // namespace maestro
