// SPDX-License-Identifier: Apache-2.0
// Judges for probes whether a run makes progress. Pure.
//
// HE-1 (waiting is healthy): a run that starts, is paused, has ended or is in its first step is healthy.
// HE-2 (adaptive): any other run is healthy if a step or another event has ended within six times `stall_timeout`, or
//       four times the longest step so far. A `stall_timeout` of 0 means no limit, as for the run.
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
    std::string reason;  ///< reason in a line
  };
  /// Judges the run. `events`: a counter that every progress message of the run increments.
  [[nodiscard]] Verdict judge(const RunStatus& run, std::uint64_t events, Clock::time_point now);

 private:
  double stall_timeout_s_;
  std::optional<std::uint64_t> events_;
  Clock::time_point progressed_;  // last time when `events` had changed, or the run was waiting
};

/// Returns "running", "paused", ...
[[nodiscard]] std::string name_of(RunState state);

}  // namespace maestro
