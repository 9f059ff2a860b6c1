// SPDX-License-Identifier: Apache-2.0
// The cores of a rehearsal whose devices share them: pieces of work that run on a core at the same time progress at
// equal rates (processor sharing), background work while there is no critical work. A core is one of a processor, or
// the multiprocessors of a GPU that streams share by their priority. Pure; not thread-safe.
//
// CO-1 (conserved): a core with work on it does a millisecond of it in each millisecond, in equal parts for each piece
//       of the higher priority.
// CO-2 (alone): a piece that is alone on its core from begin to end takes exactly its own time.
// CO-3 (demands): a piece may need a part of its core alone, its demand. Pieces beside each other progress as if each
//       was alone while their demands add up to 1 at most, else all of them more slowly by that sum.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "runtime/device/device.hpp"
#include "runtime/rehearsal/virtual_clock.hpp"

namespace maestro {

class SharedCores {
 public:
  /// `clock` outlives it.
  explicit SharedCores(VirtualClock& clock) : clock_(&clock) {}
  /// Begins work that takes `ms` of the core alone, and calls `done` at its end. A time that is negative or no number
  /// counts as 0. `demand`: in (0, 1].
  void run(int core, Priority priority, double ms, VirtualClock::Event done, double demand = 1);

 private:
  struct Piece {
    double end_ms = 0;  // Pieces::served_ms at its end
    VirtualClock::Event done;
    double demand = 1;
  };
  struct Pieces {               // of equal priority
    double served_ms = 0;       // to each since there was none
    double demand = 0;          // of all
    std::vector<Piece> by_end;  // the last ends first, and of equal ones the one that began first
    /// Returns the milliseconds in which each progresses by one.
    [[nodiscard]] double stretch() const { return std::max(1.0, demand); }
  };
  struct Core {
    double since_ms = 0;           // when served_ms was counted
    std::uint64_t plans = 0;       // of the next end; events of earlier plans do nothing
    std::array<Pieces, 2> pieces;  // by priority
    /// Returns those that progress.
    [[nodiscard]] Pieces& served() { return pieces[pieces[0].by_end.empty() ? 1 : 0]; }
  };
  /// Counts the service since the last call.
  void serve(Core& core);
  void plan_end(Core& core);
  void end(Core& core);

  VirtualClock* clock_;
  std::map<int, Core> cores_;
};

}  // namespace maestro
