// SPDX-License-Identifier: Apache-2.0
// The shortest schedule of a small workload, by branch and bound: the reference for policies and bounds.
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

/// Lanes are given to tasks in every way; then the earliest times that obey all orders decided so far are computed, and
/// wherever passes, in-flight tasks or slots still collide, every order that resolves the collision is tried. Branches
/// that are cut cannot be shorter than the best schedule so far: heads and tails along the decided orders, and the work
/// of a device. Uses nothing of the bounds and policies that it is compared with. Deterministic.
[[nodiscard]] ExhaustiveResult shortest_schedule(const Workload& workload, std::int64_t max_nodes);

}  // namespace maestro
