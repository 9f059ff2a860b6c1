// SPDX-License-Identifier: Apache-2.0
// Divides a replica's time into passes, the end of steps, and waits by reason. Pure.
//
// LK-1 (complete): the times that take() returns add up to the time since the last call.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "actors/messages/messages.hpp"

namespace maestro {

/// Not thread-safe; belongs to the replica's actor. A clock starts with its first state.
class LaneClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Record that from `now` the replica waits for `reason`, runs a pass, or acts at the end of a step.
  void waits(std::string_view reason, Time now) { enter(State::wait, reason, now); }
  void runs_pass(Time now) { enter(State::pass, {}, now); }
  void ends_step(Time now) { enter(State::step, {}, now); }
  /// Ends a pass or an action at the end of a step, for which the device worked `device_ms`. The rest counts as a wait
  /// for "device", which other replicas may share. Changes no wait.
  void work_ended(double device_ms, Time now);
  /// Counts `device_ms` of the current wait as work at the end of the step: the replica's part of an exchange.
  void worked_meanwhile(double device_ms, Time now);
  /// Returns the times since the last call.
  [[nodiscard]] LaneTimes take(Time now);

 private:
  enum class State : std::uint8_t { none, wait, pass, step };
  void enter(State state, std::string_view reason, Time now);
  /// Adds the time since the last call to the current state's time, and returns it.
  double add(Time now);

  State state_ = State::none;
  std::string reason_;
  Time since_;
  LaneTimes times_;
};

}  // namespace maestro
