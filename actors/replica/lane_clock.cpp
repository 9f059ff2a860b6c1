// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/lane_clock.hpp"

#include <algorithm>
#include <utility>

namespace maestro {

void LaneClock::pass_ended(double busy_ms, Time now) {
  const double before = times_.busy_ms;
  add(now);
  const double idle_ms = std::max(0.0, times_.busy_ms - before - busy_ms);
  times_.busy_ms -= idle_ms;
  if (idle_ms > 0) times_.wait_ms["device"] += idle_ms;
}

LaneTimes LaneClock::take(Time now) {
  add(now);
  return std::exchange(times_, {});
}

void LaneClock::enter(State state, std::string_view reason, Time now) {
  if (state == state_ && reason == reason_) return;
  add(now);
  state_ = state;
  reason_ = reason;
}

void LaneClock::add(Time now) {
  const double ms = std::chrono::duration<double, std::milli>(now - std::exchange(since_, now)).count();
  switch (state_) {
    case State::none:
      return;
    case State::wait:
      times_.wait_ms[reason_] += ms;
      return;
    case State::pass:
      times_.busy_ms += ms;
      return;
    case State::step:
      times_.step_ms += ms;
      return;
  }
}

}  // namespace maestro
