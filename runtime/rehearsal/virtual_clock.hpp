// SPDX-License-Identifier: Apache-2.0
// A clock that jumps from event to event. Pure; not thread-safe.
//
// VC-1 (order): events happen in the order of their times; events at the same time happen in the order of their
//       addition.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/rehearsal/slab.hpp"

namespace maestro {

class VirtualClock {
 public:
  using Event = std::function<void()>;

  [[nodiscard]] double now_ms() const { return now_ms_; }
  /// Adds an event. A time that is negative or NaN counts as 0.
  void after(double ms, Event event);
  /// Returns the number of events added. While it is unchanged, nothing can happen between the latest event and another
  /// event that is added for the same time.
  [[nodiscard]] std::uint64_t added() const { return added_; }
  /// Advances to the next event and runs it; false if there is none.
  bool next();

 private:
  struct Due {
    double at_ms;
    std::uint64_t number;
    Slab<Event>::Number event;
  };
  /// Orders a heap; its first element is the next event.
  static bool later(const Due& a, const Due& b) { return a.at_ms != b.at_ms ? a.at_ms > b.at_ms : a.number > b.number; }

  double now_ms_ = 0;
  std::uint64_t added_ = 0;
  std::vector<Due> due_;
  Slab<Event> events_;  // separate, as a heap moves its elements often
};

}  // namespace maestro
