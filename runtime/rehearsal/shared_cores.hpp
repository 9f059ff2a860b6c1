// SPDX-License-Identifier: Apache-2.0
// The cores in a rehearsal, which devices may share: pieces of work on the same core progress at equal rates
// (processor sharing), background work only without critical work. A core is a CPU core, or the multiprocessors of a
// GPU that streams share by their priority. Pure; not thread-safe.
//
// CO-1 (conserved): a core with work does a millisecond of work in each millisecond, in equal parts for each piece of
//       the higher priority.
// CO-2 (alone): the only piece on a core takes exactly its given time.
// CO-3 (demands): a piece may need only a part of its core, its demand. Pieces on a core do not slow each other down if
//       their demands add up to at most 1; otherwise all progress more slowly by that sum.
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
  /// Makes idle cores; `clock` outlives them.
  explicit SharedCores(VirtualClock& clock) : clock_(&clock) {}
  /// Begins work that takes `ms` on an otherwise idle core, and calls `done` at its end. A time that is negative or NaN
  /// counts as 0. `demand` is in (0, 1].
  void run(int core, Priority priority, double ms, VirtualClock::Event done, double demand = 1);

 private:
  struct Piece {
    double end_ms = 0;  // Pieces::served_ms at its end
    VirtualClock::Event done;
    double demand = 1;
  };
  struct Pieces {               // pieces with equal priority
    double served_ms = 0;       // service per piece since the core was idle
    double demand = 0;          // sum over all pieces
    std::vector<Piece> by_end;  // the last ends first; if equal, the piece that began first
    /// Returns the milliseconds that each piece needs to progress by one.
    [[nodiscard]] double stretch() const { return std::max(1.0, demand); }
  };
  struct Core {
    double since_ms = 0;           // time at which served_ms was counted
    std::uint64_t plans = 0;       // number of plans for the next end; earlier plans' events do nothing
    std::array<Pieces, 2> pieces;  // pieces by priority
    /// Returns the pieces that progress.
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
