// SPDX-License-Identifier: Apache-2.0
// The input of a scheduling policy: sections with lanes, edges between them, and tasks with times. Plain data. It comes
// from a workload file, with every sample as a separate task in each section it activates, or from a step of a run,
// with a task per micro-batch.
//
// A lane is a replica of a section. A task's forward pass runs on any lane of its section; its backward pass, if the
// section is trained, on the same lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace maestro {

inline constexpr std::int64_t no_limit = 0;

struct WorkloadSection {
  std::string name;
  bool has_backward = true;  ///< runs backward passes (mode forward_backward)
  std::int64_t replicas = 1;
  /// Limit per lane: tasks from the start of their forward pass to the end of their backward pass. Ignored for a
  /// section that is not trained.
  std::int64_t max_in_flight = no_limit;
  /// By replica, the different devices of the lane, one or more: a pass occupies them all, and a device runs a single
  /// pass at a time. Lanes with equal numbers share a device. Empty: each lane has a separate device.
  std::vector<std::vector<int>> devices;
  /// Speed of each replica, above 0: a pass takes the time of its task divided by the speed of its lane. The fastest
  /// has 1. Empty: all have 1.
  std::vector<double> speeds = {};

  /// Returns the speed of a lane.
  [[nodiscard]] double speed(std::int64_t replica) const {
    return speeds.empty() ? 1 : speeds[static_cast<std::size_t>(replica)];
  }
};

struct WorkloadEdge {
  std::size_t from = 0;
  std::size_t to = 0;
  /// Limit per consumer lane of inputs whose producer pass has ended and whose consumer pass has not started.
  std::int64_t slots = no_limit;
  double transfer_ms = 0;  ///< forward tensors and gradients
};

/// The output of `task` over `edge`.
struct TaskInput {
  std::size_t edge = 0;
  std::size_t task = 0;
};

/// A forward pass starts transfer_ms or more after the forward passes of all its inputs have ended. A backward pass
/// starts after the task's forward pass, and transfer_ms or more after each consumer's backward pass, or forward pass
/// if the consumer's section is not trained.
struct WorkloadTask {
  std::size_t section = 0;
  std::int64_t sample = 0;        ///< id in the file; for a micro-batch, its index in the section's step
  double forward_ms = 0;          ///< time on the fastest lanes of its section, as is the next
  double backward_ms = 0;         ///< 0 if the section is not trained
  std::vector<TaskInput> inputs;  ///< tasks of lower index
};

/// A workload. Sections are in topological order: every edge goes from a lower index to a higher index. So are tasks.
struct Workload {
  std::vector<WorkloadSection> sections;
  std::vector<WorkloadEdge> edges;
  std::vector<WorkloadTask> tasks;
};

}  // namespace maestro
