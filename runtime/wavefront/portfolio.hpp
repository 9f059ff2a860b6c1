// SPDX-License-Identifier: Apache-2.0
// Orders that are each good on some kind of workload; the search starts from the best of them.
#pragma once

#include <vector>

#include "runtime/wavefront/planning_graph.hpp"
#include "runtime/wavefront/simulator/simulator.hpp"

namespace maestro {

/// The critical section, which has the most work per replica, and its tasks (the anchors) with the times that order
/// them. Every other task takes the place of the first anchor that it is linked with.
struct Anchors {
  struct Anchor {
    int task = 0;
    double head_ms = 0;        ///< shortest time until it can start
    double body_ms = 0;        ///< forward and backward
    double tail_ms = 0;        ///< shortest time from the end of its forward pass to the end of all passes that need it
    double upstream_ms = 0;    ///< all work in earlier sections
    double downstream_ms = 0;  ///< all work in later sections
    bool pressing = false;     ///< linked with the section that has the second most work per lane
  };
  int section = 0;
  int lanes = 0;
  std::vector<Anchor> list;
  int upstream_in_flight = 0;  ///< tasks that all upstream lanes together may hold

  Anchors(const Workload& workload, const PlanningGraph& graph);
};

/// Returns orders of the anchors, best first by experience: each a list of their indices, most urgent first.
[[nodiscard]] std::vector<std::vector<int>> anchor_orders(const Anchors& anchors);

/// Returns DispatchRules::order from an order of the anchors.
[[nodiscard]] std::vector<int> spread_order(const PlanningGraph& graph, const Anchors& anchors,
                                            const std::vector<int>& anchor_order);

}  // namespace maestro
