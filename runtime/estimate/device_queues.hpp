// SPDX-License-Identifier: Apache-2.0
// The devices of a rehearsal: each runs one work at a time, critical work first, like a device's thread. Pure; not
// thread-safe.
//
// DQ-1 (together): work of several devices runs on all of them at the same time; a device whose turn it is waits for
//       the others.
// DQ-2 (in order): a device runs its critical work in the order of submit(), and the rest in that order while there is
//       no critical work. Work that has begun is not interrupted.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "runtime/device/device.hpp"
#include "runtime/estimate/slab.hpp"
#include "runtime/estimate/virtual_clock.hpp"

namespace maestro {

class DeviceQueues {
 public:
  /// Called when the work ends, with the time of its start.
  using Done = std::function<void(double start_ms)>;

  /// `clock` outlives it.
  explicit DeviceQueues(VirtualClock& clock) : clock_(&clock) {}
  /// Queues work on these devices, numbered from 0; on none it starts at once. Work of several devices has to be
  /// critical.
  void submit(std::span<const int> devices, Priority priority, double ms, Done done);

 private:
  struct Work {
    std::vector<int> devices;
    Priority priority = Priority::critical;
    double ms = 0;
    Done done;
    bool begun = false;
    double start_ms = 0;
  };
  using Number = Slab<Work>::Number;
  [[nodiscard]] std::deque<Number>& queue_of(int device) { return queues_[static_cast<std::size_t>(device)]; }
  /// Starts the work, unless another is before it on some device.
  void try_start(Number work);
  void end(Number work);

  VirtualClock* clock_;
  Slab<Work> work_;
  std::vector<std::deque<Number>> queues_;  // by device; the first runs, or waits for other devices
};

}  // namespace maestro
