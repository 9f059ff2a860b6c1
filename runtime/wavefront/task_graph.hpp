// SPDX-License-Identifier: Apache-2.0
// Surroundings of a task: the devices that its passes occupy, the tasks that read its output, and the minimum times
// before and after its passes on any number of lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/wavefront/workload.hpp"

namespace maestro {

/// A device: (0, number in the workload), or (section + 1, replica) for a lane with an unshared device.
using DeviceKey = std::pair<std::size_t, std::int64_t>;

/// Returns the devices of a lane.
[[nodiscard]] std::vector<DeviceKey> devices_of(const Workload& workload, std::size_t section, std::int64_t replica);

/// A task that reads an output, and the edge it reads it over.
struct TaskConsumer {
  std::size_t edge = 0;
  std::size_t task = 0;
};

/// Returns, by task, its consumers, an entry for each TaskInput.
[[nodiscard]] std::vector<std::vector<TaskConsumer>> consumers_of(const Workload& workload);

/// Heads and tails of a task's passes, in milliseconds, on unlimited lanes. A head is the earliest start; a tail is the
/// shortest time from the end of the pass to the end of everything that needs it. The two of a backward pass are
/// meaningless if the section is not trained.
struct PassPaths {
  double forward_head = 0;
  double forward_tail = 0;
  double backward_head = 0;
  double backward_tail = 0;
};

/// Returns the paths by task. Linear in tasks and inputs.
[[nodiscard]] std::vector<PassPaths> pass_paths(const Workload& workload,
                                                const std::vector<std::vector<TaskConsumer>>& consumers);

/// Returns, by task, the shortest time from the start of its forward to the start of its backward pass; without a
/// backward pass the forward time. (Not the difference of the heads, which may come from parallel tasks.) Linear in
/// tasks and each task's downstream tasks.
[[nodiscard]] std::vector<double> turnarounds(const Workload& workload,
                                              const std::vector<std::vector<TaskConsumer>>& consumers);

}  // namespace maestro
