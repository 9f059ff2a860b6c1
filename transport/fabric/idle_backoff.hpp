// SPDX-License-Identifier: Apache-2.0
// The pause of a polling thread between two polls. Pure: time comes from outside.
//
// The pause is a fixed share of the silence so far: a thread that has waited 10 ms can wait 0.15 ms more, and a thread
// that was just busy polls again at once. The delay added to an event is therefore at most 1/64 of the silence before
// it, while an idle endpoint wakes two hundred times a second, below 1% of a core.
#pragma once

#include <algorithm>
#include <chrono>

namespace maestro {

class IdleBackoff {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds spin{5};  ///< silence without pauses
  static constexpr std::chrono::microseconds shortest_pause{20};
  static constexpr std::chrono::microseconds longest_pause{5000};
  static constexpr int share = 64;  ///< divisor of the silence

  explicit IdleBackoff(Clock::time_point now) : last_event_(now) {}
  void note_event(Clock::time_point now) { last_event_ = now; }
  [[nodiscard]] Clock::duration silence(Clock::time_point now) const { return now - last_event_; }
  /// Returns the pause; 0: poll again at once.
  [[nodiscard]] Clock::duration pause(Clock::time_point now) const {
    const auto silent = silence(now);
    if (silent < spin) return Clock::duration::zero();
    return std::clamp<Clock::duration>(silent / share, shortest_pause, longest_pause);
  }

 private:
  Clock::time_point last_event_;
};

}  // namespace maestro
