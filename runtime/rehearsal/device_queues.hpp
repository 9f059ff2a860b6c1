// SPDX-License-Identifier: Apache-2.0
// The devices of a rehearsal: each runs one work item at a time, critical work first, like a device's thread. Devices
// may share cores, like the CPU device threads on a host with fewer cores, and like sections' streams on a GPU. Pure;
// not thread-safe.
//
// DQ-1 (together): work for several devices runs on all of them at the same time; a device whose turn has come waits
//       for the others. If cores are shared, the work ends with its last part.
// DQ-2 (in order): a device runs critical work in the order of submit(), and other work in that order if none is
//       critical. Running work is not interrupted.
// DQ-3 (own cores): if no two devices share a core, work takes exactly its given time.
// DQ-4 (parts): a device may be a part of its core, with a demand below 1 (CO-3). Its work then runs together with the
//       other parts' work, regardless of priority.
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
  /// Callback for the end of work, with the time of its start.
  using Done = std::function<void(double start_ms)>;

  /// Makes idle devices; `clock` outlives them. `cores`: cores by device; a device without an entry, or with an entry
  /// below 0, has a separate core. `demands`: demands by device, in (0, 1]; 1 for a device without an entry.
  explicit DeviceQueues(VirtualClock& clock, std::vector<int> cores = {}, std::vector<double> demands = {})
      : clock_(&clock), core_of_(std::move(cores)), demand_of_(std::move(demands)), cores_(clock) {}
  /// Queues work on these devices, numbered from 0; without devices it starts at once. Work for several devices is
  /// critical, or has the priority of all work on them.
  void submit(std::span<const int> devices, Priority priority, double ms, Done done);
  /// Runs work on the cores of these devices at once, together with the work in their queues.
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
  /// Starts the work, unless other work is before it on some device.
  void try_start(Number work);
  void end(Number work);

  VirtualClock* clock_;
  std::vector<int> core_of_;       // core by device
  std::vector<double> demand_of_;  // demand by device
  SharedCores cores_;
  Slab<Work> work_;
  std::vector<std::vector<Number>> queues_;  // queues by device; the first entry runs, or waits for other devices
};

}  // namespace maestro
