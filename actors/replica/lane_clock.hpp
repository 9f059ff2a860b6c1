// SPDX-License-Identifier: Apache-2.0
// What the time of a replica went into: passes, the end of steps, and waits by their reason. Pure.
//
// LK-1 (whole): between two calls of take() the times add up to the time between them.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "actors/messages/messages.hpp"

namespace maestro {

/// Not thread-safe; belongs to the replica's actor. A clock begins with its first state.
class LaneClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// From `now` on the replica waits for `reason`, runs a pass, or acts at the end of a step.
  void waits(std::string_view reason, Time now) { enter(State::wait, reason, now); }
  void runs_pass(Time now) { enter(State::pass, {}, now); }
  void ends_step(Time now) { enter(State::step, {}, now); }
  /// The pass has ended, of which the device was at work for `busy_ms`. The rest counts as a wait for "device", which
  /// other replicas may share.
  void pass_ended(double busy_ms, Time now);
  /// Returns the times since the last call.
  [[nodiscard]] LaneTimes take(Time now);

 private:
  enum class State : std::uint8_t { none, wait, pass, step };
  void enter(State state, std::string_view reason, Time now);
  /// Adds the time since the last call to the state's own.
  void add(Time now);

  State state_ = State::none;
  std::string reason_;
  Time since_;
  LaneTimes times_;
};

}  // namespace maestro
