// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/lane_clock.hpp"

#include <algorithm>
#include <utility>

namespace maestro {

void LaneClock::work_ended(double device_ms, Time now) {
  const double idle_ms = add(now) - device_ms;
  if (idle_ms <= 0 || state_ == State::none || state_ == State::wait) return;
  (state_ == State::pass ? times_.busy_ms : times_.step_end_ms) -= idle_ms;
  times_.wait_ms["device"] += idle_ms;
}

void LaneClock::worked_meanwhile(double device_ms, Time now) {
  if (state_ != State::wait) return;
  add(now);
  double& waited_ms = times_.wait_ms[reason_];
  const double worked_ms = std::min(device_ms, waited_ms);
  waited_ms -= worked_ms;
  times_.step_end_ms += worked_ms;
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

double LaneClock::add(Time now) {
  const double ms = std::chrono::duration<double, std::milli>(now - std::exchange(since_, now)).count();
  switch (state_) {
    case State::none:
      break;
    case State::wait:
      times_.wait_ms[reason_] += ms;
      break;
    case State::pass:
      times_.busy_ms += ms;
      break;
    case State::step:
      times_.step_end_ms += ms;
      break;
  }
  return ms;
}

}  // namespace maestro
