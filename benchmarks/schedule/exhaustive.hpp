// SPDX-License-Identifier: Apache-2.0
// The shortest schedule of a small workload, found by branch and bound: the reference for policies and bounds.
#pragma once

#include <cstdint>

#include "runtime/wavefront/schedule.hpp"
#include "runtime/wavefront/workload.hpp"

namespace maestro {

struct ExhaustiveResult {
  Schedule schedule;    ///< the best schedule found
  bool proven = false;  ///< no schedule is shorter; false when `max_nodes` ended the search
  std::int64_t nodes = 0;
};

/// Tries every assignment of tasks to lanes. For an assignment it computes the earliest times that obey all orders
/// decided so far; if passes, in-flight tasks or slots still collide, it tries every order that resolves the collision.
/// It cuts branches that cannot be shorter than the best schedule so far, by heads and tails along the decided orders
/// and by each device's work. Shares no code with the bounds and policies that it is compared with. Deterministic.
[[nodiscard]] ExhaustiveResult shortest_schedule(const Workload& workload, std::int64_t max_nodes);

}  // namespace maestro
