// SPDX-License-Identifier: Apache-2.0
#include "runtime/estimate/shared_cores.hpp"

namespace maestro {

void SharedCores::run(int core, double ms, VirtualClock::Event done) {
  Core& on = cores_[core];
  serve(on);
  on.pieces.try_emplace({on.served_ms + (ms > 0 ? ms : 0), on.added++}, std::move(done));
  plan_end(on);
}

void SharedCores::serve(Core& core) {
  const double now_ms = clock_->now_ms();
  if (core.pieces.empty()) {
    core.served_ms = 0;  // CO-2
  } else if (now_ms > core.since_ms) {
    core.served_ms += (now_ms - core.since_ms) / static_cast<double>(core.pieces.size());
  }
  core.since_ms = now_ms;
}

void SharedCores::plan_end(Core& core) {
  if (core.pieces.empty()) return;
  const double rest_ms = core.pieces.begin()->first.first - core.served_ms;
  clock_->after(rest_ms * static_cast<double>(core.pieces.size()), [this, &core, plan = ++core.plans] {
    if (plan == core.plans) end(core);
  });
}

void SharedCores::end(Core& core) {
  core.served_ms = core.pieces.begin()->first.first;
  core.since_ms = clock_->now_ms();
  const VirtualClock::Event done = std::move(core.pieces.begin()->second);
  core.pieces.erase(core.pieces.begin());
  plan_end(core);
  done();
}

}  // namespace maestro
