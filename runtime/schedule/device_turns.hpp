// SPDX-License-Identifier: Apache-2.0
// Decides when the lanes of a process may begin work on their devices. Lanes that share a device take turns, in the
// order that the step's plan has for their passes.
//
// DT-1 (the plan's order): a device runs one pass with a turn at a time. A unit is all training passes, or all
//       evaluation passes, of a step; its passes on a device begin in the order of their places.
// DT-2 (units overlap): a device whose next pass in a unit cannot run yet takes the next pass of a later unit. If both
//       could run, the earlier unit goes first, also on devices that wait until the pass' other devices are free.
// DT-3 (one by one): a start returns before the next begins, on any thread, and none begins inside another. So work for
//       several devices is queued in the same order on all of them.
// DT-4 (no turns after a change): after open() passes begin when they can: a lane that begins anew or moves elsewhere
//       leaves turns that nothing takes.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/graph/pass.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// Thread-safe.
class DeviceTurns {
 public:
  /// Queues work on devices; called once, on any thread.
  using Start = std::function<void()>;
  using Unit = std::pair<StepId, Pass>;

  /// Begins work without turns as soon as no other start is under way (DT-3).
  void begin(Start start);
  /// Begins a pass as soon as its turn has come on all its devices. `turns` is not empty. Every pass before it on these
  /// devices is offered, too, now or later.
  void offer(Unit unit, const std::vector<DeviceTurn>& turns, Start start);
  /// Records that the pass that runs on a device has ended there.
  void ended(std::uint32_t device);
  /// Begins all passes that wait, and from now on each pass when it is offered (DT-4).
  void open();
  /// Drops what has not begun; nothing begins afterwards.
  void stop();

 private:
  struct Offer {
    Unit unit;
    std::vector<DeviceTurn> turns;
    Start start;
  };
  struct Line {
    std::map<Unit, std::uint32_t> next;           // next place by unit; none: 0
    std::vector<std::shared_ptr<Offer>> offered;  // passes that have not begun, by unit
    bool running = false;
  };
  [[nodiscard]] bool due(const Offer& offer) const;
  [[nodiscard]] bool may_begin(const Offer& offer) const;
  void start(const std::shared_ptr<Offer>& offer);
  void run_starts(std::unique_lock<std::mutex> lock);

  std::mutex mutex_;
  std::map<std::uint32_t, Line> lines_;  // by device
  std::deque<Start> starts_;
  bool open_ = false;
  bool starting_ = false;
  bool stopped_ = false;
};

}  // namespace maestro
