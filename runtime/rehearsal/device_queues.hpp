// SPDX-License-Identifier: Apache-2.0
// The devices of a rehearsal: each runs one work at a time, critical work first, like a device's thread. Devices may
// share cores, as device threads of processors do where there are more of them than cores, and the streams of sections
// on a GPU. Pure; not thread-safe.
//
// DQ-1 (together): work of several devices runs on all of them at the same time; a device whose turn it is waits for
//       the others. It ends with its last part, where cores are shared.
// DQ-2 (in order): a device runs its critical work in the order of submit(), and the rest in that order while there is
//       no critical work. Work that has begun is not interrupted.
// DQ-3 (own cores): where no two devices have the same core, work takes exactly its own time.
// DQ-4 (parts): a device may be a part of its core, with a demand below 1 (CO-3): its work is beside that of the other
//       parts, whatever its priority.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/device/device.hpp"
#include "runtime/rehearsal/shared_cores.hpp"
#include "runtime/rehearsal/slab.hpp"
#include "runtime/rehearsal/virtual_clock.hpp"

namespace maestro {

class DeviceQueues {
 public:
  /// Called when the work ends, with the time of its start.
  using Done = std::function<void(double start_ms)>;

  /// `clock` outlives it. `cores`: by device; a device without an entry, or below 0, has a core of its own. `demands`:
  /// by device, in (0, 1]; 1 for a device without an entry.
  explicit DeviceQueues(VirtualClock& clock, std::vector<int> cores = {}, std::vector<double> demands = {})
      : clock_(&clock), core_of_(std::move(cores)), demand_of_(std::move(demands)), cores_(clock) {}
  /// Queues work on these devices, numbered from 0; on none it starts at once. Work of several devices has the
  /// priority of all their work, or is critical.
  void submit(std::span<const int> devices, Priority priority, double ms, Done done);
  /// Runs work on the cores of these devices at once, beside the work of their queues.
  void run(std::span<const int> devices, Priority priority, double ms, VirtualClock::Event done);

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
  [[nodiscard]] std::vector<Number>& queue_of(int device) { return queues_[static_cast<std::size_t>(device)]; }
  void run_on_core(int device, Priority priority, double ms, VirtualClock::Event done);
  /// Starts the work, unless another is before it on some device.
  void try_start(Number work);
  void end(Number work);

  VirtualClock* clock_;
  std::vector<int> core_of_;       // by device
  std::vector<double> demand_of_;  // by device
  SharedCores cores_;
  Slab<Work> work_;
  std::vector<std::vector<Number>> queues_;  // by device; the first runs, or waits for other devices
};

}  // namespace maestro
