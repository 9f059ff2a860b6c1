// SPDX-License-Identifier: Apache-2.0
// Time while this process ran. A process that was stopped (Ctrl-Z, docker pause, a snapshot of its machine) or starved
// finds a gap between two readings of the clock; such a gap does not count as silence of a peer.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace maestro {

/// Read every `interval`; a gap counts at most as twice the interval. Not thread-safe.
class RunClock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;
  explicit RunClock(Duration interval) : most_(2 * interval) {}

  /// Returns the time that this process has run since the first call.
  Duration look(Time now) {
    if (last_) ran_ += std::clamp(now - *last_, Duration(0), most_);
    last_ = now;
    return ran_;
  }
  [[nodiscard]] Duration ran() const { return ran_; }

 private:
  Duration most_;
  Duration ran_{0};
  std::optional<Time> last_;
};

}  // namespace maestro
