// SPDX-License-Identifier: Apache-2.0
// The cores of a rehearsal whose devices share them: pieces of work that run on a core at the same time progress at
// equal rates (processor sharing). Pure; not thread-safe.
//
// CO-1 (conserved): a core with work on it does a millisecond of it in each millisecond, in equal parts for each piece.
// CO-2 (alone): a piece that is alone on its core from begin to end takes exactly its own time.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "runtime/estimate/virtual_clock.hpp"

namespace maestro {

class SharedCores {
 public:
  /// `clock` outlives it.
  explicit SharedCores(VirtualClock& clock) : clock_(&clock) {}
  /// Begins work that takes `ms` of the core alone, and calls `done` at its end. A time that is negative or no number
  /// counts as 0.
  void run(int core, double ms, VirtualClock::Event done);

 private:
  struct Core {
    double served_ms = 0;     // to each piece since the core was last without work, at `since_ms`
    double since_ms = 0;      // when it was counted
    std::uint64_t added = 0;  // pieces
    std::uint64_t plans = 0;  // of the next end; events of earlier plans do nothing
    std::map<std::pair<double, std::uint64_t>, VirtualClock::Event> pieces;  // by served_ms at their end, and order
  };
  /// Counts the service since the last call.
  void serve(Core& core);
  void plan_end(Core& core);
  void end(Core& core);

  VirtualClock* clock_;
  std::map<int, Core> cores_;
};

}  // namespace maestro
