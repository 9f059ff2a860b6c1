// SPDX-License-Identifier: Apache-2.0
// The schedule of last resort: a single pass at a time, each as late as the oldest unfinished task demands it. It needs
// the fewest slots and the fewest tasks in flight among schedules that finish tasks in order.
#pragma once

#include <optional>

#include "runtime/wavefront/schedule.hpp"

namespace maestro {

/// Returns nothing if even this schedule does not fit the limits. O(tasks x links of a task).
[[nodiscard]] std::optional<Schedule> one_at_a_time(const Workload& workload);

}  // namespace maestro
