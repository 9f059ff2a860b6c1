// SPDX-License-Identifier: Apache-2.0
// Small workloads and random dispatch rules for tests of the simulator and the search.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/core/random.hpp"
#include "runtime/wavefront/planning_graph.hpp"
#include "runtime/wavefront/portfolio.hpp"
#include "runtime/wavefront/simulator/simulator.hpp"
#include "runtime/wavefront/workload.hpp"

namespace maestro {

inline constexpr double endless = std::numeric_limits<double>::infinity();

inline WorkloadTask task(std::size_t section, std::int64_t sample, double forward_ms, double backward_ms,
                         std::vector<TaskInput> inputs = {}) {
  return {section, sample, forward_ms, backward_ms, std::move(inputs)};
}

/// Returns an encoder and an llm with one lane each, both forward only: a flow shop of two machines. `times` by sample.
inline Workload flow_shop(const std::vector<std::pair<double, double>>& times) {
  Workload workload;
  workload.sections = {{"vision", false, 1, no_limit, {}}, {"llm", false, 1, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0}};
  for (std::size_t sample = 0; sample < times.size(); ++sample) {
    const auto id = static_cast<std::int64_t>(sample);
    workload.tasks.push_back({0, id, times[sample].first, 0, {}});
    workload.tasks.push_back({1, id, times[sample].second, 0, {{0, 2 * sample}}});
  }
  return workload;
}

/// Places the lanes of most sections on random sets of up to four devices.
inline void spread_over_devices(Workload& workload, Random& random) {
  const std::uint64_t devices = 1 + random.below(4);
  for (WorkloadSection& section : workload.sections) {
    section.devices.clear();
    if (random.below(4) == 0) continue;
    for (std::int64_t replica = 0; replica < section.replicas; ++replica) {
      const std::uint64_t mask = 1 + random.below((std::uint64_t{1} << devices) - 1);
      std::vector<int>& lane = section.devices.emplace_back();
      for (int device = 0; device < 4; ++device) {
        if ((mask >> device & 1) != 0) lane.push_back(device);
      }
    }
  }
}

/// Returns list rules with the given order of tasks, by section.
inline DispatchRules list_rules(const PlanningGraph& graph, std::vector<int> order) {
  DispatchRules rules;
  rules.order = std::move(order);
  rules.theta.assign(graph.sections.size(), 0.5);
  return rules;
}

/// Returns an order of the portfolio with a few exchanges, and every switch at random.
inline DispatchRules random_rules(const Workload& workload, const PlanningGraph& graph, Random& random) {
  constexpr std::array thetas{0.0, 0.5, 1.0, 3.0, forward_first};
  constexpr std::array depths{0.0, 1.0, 2.0, 1e9};
  const Anchors anchors(workload, graph);
  const auto orders = anchor_orders(anchors);
  DispatchRules rules;
  rules.order = spread_order(graph, anchors, orders[random.below(orders.size())]);
  for (std::uint64_t swaps = random.below(6); swaps > 0; --swaps) {
    const PlanningGraph::Section& section = graph.sections[random.below(graph.sections.size())];
    if (section.tasks == 0) continue;
    const auto place = [&] { return section.first_task + random.below(static_cast<std::uint64_t>(section.tasks)); };
    const auto first = place();
    std::swap(rules.order[first], rules.order[place()]);
  }
  for (std::size_t n = 0; n < graph.sections.size(); ++n) {
    rules.theta.push_back(thetas[random.below(thetas.size())]);
    rules.slots_at_start.push_back(static_cast<char>(random.below(2)));
  }
  for (std::size_t n = 0; n < graph.edges.size(); ++n) rules.depth.push_back(depths[random.below(depths.size())]);
  rules.discipline = random.below(4) == 0 ? DispatchRules::Discipline::section_order : DispatchRules::Discipline::list;
  rules.hungry_producers_first = random.below(2) == 0;
  rules.ordered_gradients = random.below(2) == 0;
  rules.device_order = static_cast<DispatchRules::DeviceOrder>(random.below(3));
  rules.await_faster = random.below(2) == 0;
  rules.last_lane_first = random.below(2) == 0;
  rules.whole_tasks = random.below(2) == 0;
  rules.foresee_slots = random.below(4) != 0;
  rules.joint_slots = static_cast<DispatchRules::JointSlots>(random.below(3));
  return rules;
}

}  // namespace maestro
