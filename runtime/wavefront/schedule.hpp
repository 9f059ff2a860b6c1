// SPDX-License-Identifier: Apache-2.0
// Time and lane of every pass in a workload: the plan of a policy. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/wavefront/workload.hpp"

namespace maestro {

struct PlannedPass {
  std::size_t task = 0;
  bool backward = false;
  std::int64_t replica = 0;
  double start_ms = 0;
  double end_ms = 0;
  /// Phases of a bulk-synchronous plan: within a group, no pass starts before all passes of lower phases have ended,
  /// however long they really take. Other policies leave both at 0.
  std::int64_t group = 0;
  std::int64_t phase = 0;
};

struct Schedule {
  std::vector<PlannedPass> passes;  ///< passes by start, then end: the order in which each lane runs them
  double makespan_ms = 0;
};

/// Returns an Error naming section, replica, sample and the two times for the first broken rule of workload.hpp: a task
/// missing, doubled or on another lane backward than forward; wrong duration; two passes at once on a lane or device; a
/// dependency; slots; in-flight limit. `tolerance_ms` forgives rounding. O(n log n) in passes.
Status check_schedule(const Workload& workload, const Schedule& schedule, double tolerance_ms = 1e-6);

/// Returns the share of [0, makespan] during which the lanes of each section run a pass, averaged over its lanes. By
/// section.
std::vector<double> utilization(const Workload& workload, const Schedule& schedule);

}  // namespace maestro
