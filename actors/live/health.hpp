// SPDX-License-Identifier: Apache-2.0
// Judges whether a run goes on, for probes. Pure.
//
// HE-1 (waiting is healthy): a run that starts, is paused or has ended is healthy, and so is one in its first step.
// HE-2 (adaptive): otherwise a step or another event of the run lies at most six `stall_timeout`s back, or four of the
//       longest step so far. A `stall_timeout` of 0 means that there is no limit, as for the run itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "actors/run/coordinator/control_messages.hpp"

namespace maestro {

/// Not thread-safe.
class HealthJudge {
 public:
  using Clock = std::chrono::steady_clock;
  explicit HealthJudge(double stall_timeout_s) : stall_timeout_s_(stall_timeout_s) {}

  struct Verdict {
    bool healthy = true;
    std::string reason;  ///< a line
  };
  /// `events`: a counter that every progress message of the run increments.
  [[nodiscard]] Verdict judge(const RunStatus& run, std::uint64_t events, Clock::time_point now);

 private:
  double stall_timeout_s_;
  std::optional<std::uint64_t> events_;
  Clock::time_point progressed_;  // when `events` was seen to have changed, or the run was last seen to wait
};

/// Returns "running", "paused", ...
[[nodiscard]] std::string name_of(RunState state);

}  // namespace maestro
