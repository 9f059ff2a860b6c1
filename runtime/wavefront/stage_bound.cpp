// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/stage_bound.hpp"

#include <algorithm>
#include <functional>
#include <queue>

namespace maestro {

namespace {

/// Sorts by Smith's ratio: most body for the least neighbour work first. It is also the order of the fractional
/// knapsack.
std::vector<StagedJob> by_ratio(std::vector<StagedJob> jobs) {
  std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.other * b.body < b.other * a.body; });
  return jobs;
}

}  // namespace

std::vector<double> earliest_start_sums(const StagedWork& work, std::vector<double> free_heads, std::size_t machines) {
  std::vector<double> starts = std::move(free_heads);
  std::vector<double> others;
  for (const StagedJob& job : work.jobs) others.push_back(job.other);
  std::sort(others.begin(), others.end());
  others.resize(std::min(others.size(), machines));
  if (work.separate) {
    std::priority_queue<double, std::vector<double>, std::greater<>> lanes;
    for (std::size_t lane = 0; lane < work.other_machines; ++lane) lanes.push(work.other_head);
    for (const double other : others) {
      const double end = lanes.top() + other;
      lanes.pop();
      lanes.push(end);
      starts.push_back(end + work.lag);
    }
  } else {
    double total = 0;  // shared work is limited only by the capacity
    for (const double other : others) {
      total += other;
      starts.push_back(work.other_head + total / static_cast<double>(work.other_machines) + work.lag);
    }
  }
  std::sort(starts.begin(), starts.end());
  std::vector<double> sums(1, 0.0);
  for (std::size_t k = 0; k < std::min(machines, starts.size()); ++k) sums.push_back(sums.back() + starts[k]);
  return sums;
}

double johnson_bound(const StagedWork& work, double free_body, std::size_t machines) {
  const double here = static_cast<double>(machines);
  const double there = static_cast<double>(work.other_machines);
  std::vector<StagedJob> order;
  for (const StagedJob& job : work.jobs) order.push_back({job.task, job.other / there, job.body / here});
  const auto split = std::partition(order.begin(), order.end(), [](const auto& job) { return job.other < job.body; });
  std::sort(order.begin(), split, [](const auto& a, const auto& b) { return a.other < b.other; });
  std::sort(split, order.end(), [](const auto& a, const auto& b) { return a.body > b.body; });
  double first = work.other_head;
  double second = free_body / here;
  for (const StagedJob& job : order) {
    first += job.other;
    second = std::max(second, first + work.lag) + job.body;
  }
  return second;
}

IdleTime idle_before(const StagedWork& work, std::size_t machines, double latest) {
  const double here = static_cast<double>(machines);
  double time = std::min(work.other_head + work.lag, latest);
  double done = 0;
  IdleTime idle{time, here * time};
  // Linear between two jobs, so the largest value is at a job's end or at `latest`.
  for (const StagedJob& job : by_ratio(work.jobs)) {
    const double length = job.other / static_cast<double>(work.other_machines);
    const double share = length > 0 ? std::min(1.0, (latest - time) / length) : 1.0;
    time += share * length;
    done += share * job.body;
    if (here * time - done > idle.machine_ms) idle = {time, here * time - done};
    if (share < 1) break;
  }
  return idle;
}

double weighted_start_sum(const StagedWork& work) {
  const double machines = static_cast<double>(work.other_machines);
  double passed = 0;
  double sum = 0;
  for (const StagedJob& job : by_ratio(work.jobs)) {
    passed += job.other;
    double end = passed / machines;
    if (work.separate) end += (machines - 1) / (2 * machines) * job.other;
    sum += job.body * (work.other_head + end + work.lag);
  }
  return sum;
}

}  // namespace maestro
