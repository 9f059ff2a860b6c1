// SPDX-License-Identifier: Apache-2.0
// Slots of an edge while a schedule is built in virtual time: assigns outputs to consumer lanes that may still take
// them.
//
// A consumer that is bound late decides on its lane when it starts, yet its input has lain in a slot of that lane since
// it was made. A lane is therefore kept as units, a unit per slot, each free since the moment its last input was taken;
// an input made at time p fits a unit that is free since p or before.
//
// LG-1 (no overdraft): waiting + promised inputs never outnumber the free units.
// LG-2 (matching): every waiting input can have a separate unit that has been free since it was made; as units and
// inputs are nested in time (Hall 1935), that is: of the units, at least as many are free since p as inputs wait since
// p.
// LG-3 (own unit): an input that a lane claims or reserves lies in a unit of that lane that was free when it was made.
#pragma once

#include <cstddef>
#include <vector>

namespace maestro {

/// Times never decrease from call to call. Not thread-safe; no allocation after the first reset.
class SlotLedger {
 public:
  void reset(int lanes, int slots);

  /// Returns the number of units that neither a waiting nor a promised input needs.
  [[nodiscard]] int spare() const {
    return static_cast<int>(free_.size()) - static_cast<int>(waiting_.size()) - promised_;
  }
  /// Returns the number of inputs that wait or are promised.
  [[nodiscard]] int held() const { return static_cast<int>(waiting_.size()) + promised_; }
  /// Counts the output of a producer pass that starts. Needs spare() > 0.
  void promise() { ++promised_; }
  /// Takes a promise back: the pass does not start after all.
  void withdraw_promise() { --promised_; }
  /// Turns a promise into a waiting input: the producer pass has ended.
  void produce(double now) {
    --promised_;
    waiting_.push_back(now);
  }
  /// Returns whether a consumer on `lane` may start with the waiting input made at `produced`, so that every other
  /// waiting input keeps a unit (matching).
  [[nodiscard]] bool can_claim(int lane, double produced) const;
  void claim(int lane, double produced, double now);
  /// Sets that input aside for a consumer that may start now or later; returns the unit of the input. Neither is open
  /// to others. Needs can_claim(). Ended by put_back() or, once the consumer has started at `since`, by cancel(lane, 1,
  /// &since).
  [[nodiscard]] double set_aside(int lane, double produced);
  /// Puts the input back to waiting: the consumer does not start after all.
  void put_back(int lane, double produced, double unit);

  /// Returns whether units of a lane can be set aside before the inputs are made, for tasks with several inputs that
  /// the same lane must hold. Such inputs neither wait nor are promised. `units` receives the time since when each unit
  /// has been free.
  [[nodiscard]] bool can_reserve(int lane, int count) const;
  void reserve(int lane, int count, double* units);
  /// Releases reserved units; they are free since the same times as before.
  void cancel(int lane, int count, const double* units);
  /// Releases `count` reserved inputs: their consumer starts.
  void release(int lane, int count, double now);
  /// Returns whether `taker` has separate units, free since `produced`, for `count` inputs for which `units` of another
  /// lane were reserved. Then a consumer may start there: cancel() on the other lane, and take().
  [[nodiscard]] bool can_take(int taker, int count, double produced, const double* units) const;
  void take(int taker, int count, double produced, double now);

 private:
  [[nodiscard]] std::size_t first_of(int lane) const { return static_cast<std::size_t>(lane) * slots_; }
  /// Returns the lane's unit that is free since the latest time not after `produced`; -1 if there is none.
  [[nodiscard]] int best_unit(int lane, double produced) const;
  void remove_unit(int lane, int unit);
  /// Returns whether at least `count` units could go for every waiting input made in [from, to).
  [[nodiscard]] bool slack_within(double from, double to, int count) const;

  std::size_t slots_ = 0;
  std::vector<double> units_;    // (lane, slot): free since; ascending, the first lane_free_[lane] of each lane
  std::vector<int> lane_free_;   // by lane
  std::vector<double> free_;     // all free units, ascending
  std::vector<double> waiting_;  // waiting inputs by the time of production, ascending
  int promised_ = 0;
};

}  // namespace maestro
