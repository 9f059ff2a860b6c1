// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/shared_cores.hpp"

#include <algorithm>
#include <functional>

namespace maestro {

void SharedCores::run(int core, Priority priority, double ms, VirtualClock::Event done, double demand) {
  Core& on = cores_[core];
  serve(on);
  Pieces& pieces = on.pieces[static_cast<std::size_t>(priority)];
  if (pieces.by_end.empty()) pieces.served_ms = pieces.demand = 0;  // CO-2
  pieces.demand += demand;
  Piece piece{pieces.served_ms + (ms > 0 ? ms : 0), std::move(done), demand};
  const auto at = std::ranges::lower_bound(pieces.by_end, piece.end_ms, std::greater(), &Piece::end_ms);
  pieces.by_end.insert(at, std::move(piece));
  plan_end(on);
}

void SharedCores::serve(Core& core) {
  const double now_ms = clock_->now_ms();
  Pieces& pieces = core.served();
  if (!pieces.by_end.empty() && now_ms > core.since_ms) {
    pieces.served_ms += (now_ms - core.since_ms) / pieces.stretch();
  }
  core.since_ms = now_ms;
}

void SharedCores::plan_end(Core& core) {
  const Pieces& pieces = core.served();
  if (pieces.by_end.empty()) return;
  const double rest_ms = pieces.by_end.back().end_ms - pieces.served_ms;
  clock_->after(rest_ms * pieces.stretch(), [this, &core, plan = ++core.plans] {
    if (plan == core.plans) end(core);
  });
}

void SharedCores::end(Core& core) {
  Pieces& pieces = core.served();
  pieces.served_ms = pieces.by_end.back().end_ms;
  core.since_ms = clock_->now_ms();
  const VirtualClock::Event done = std::move(pieces.by_end.back().done);
  pieces.demand -= pieces.by_end.back().demand;
  pieces.by_end.pop_back();
  plan_end(core);
  done();
}

}  // namespace maestro
