// SPDX-License-Identifier: Apache-2.0
// Decides from looks at a run whether it is stalled: work is announced, but nothing computes, moves or ends.
//
// SJ-1 (adaptive): a look is due if no event has occurred for `limit()`: the given time, or four times the longest gap
//       between events so far.
// SJ-2 (two looks): only two consecutive looks, half a limit apart, with equal findings and without an event between
//       them end a run.
// SJ-3 (work is not a stall): while any actor computes, the run is reported after `reports_after` limits, and again
//       whenever that time has doubled. Only the work limit, if given, ends such a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/run_clock.hpp"

namespace maestro {

struct StallLook {
  bool announced = false;            ///< some announced work has not ended
  std::uint64_t events = 0;          ///< messages handled by coordinator and replicas
  std::vector<std::string> silent;   ///< actors that did not answer in time
  std::vector<std::string> working;  ///< actors that compute, prepare or store
  std::vector<std::string> waiting;  ///< "replica A waits for ..."
};

/// Not thread-safe. Times come from a RunClock.
class StallJudge {
 public:
  using Duration = RunClock::Duration;
  static constexpr int reports_after = 6;

  /// `work_limit` 0: work may last forever.
  explicit StallJudge(Duration limit, Duration work_limit = Duration(0))
      : least_(limit), work_limit_(work_limit), report_at_(0) {}

  /// Returns whether a look is due. `events`: a counter that every event of the run increments.
  [[nodiscard]] bool wants_look(std::uint64_t events, Duration now);
  /// Judges a look, after wants_look() returned true.
  struct Verdict {
    std::optional<std::string> ended;   ///< the run is stalled, a single line
    std::optional<std::string> report;  ///< the run takes long, a single line
  };
  [[nodiscard]] Verdict judge(const StallLook& look, Duration now);

  [[nodiscard]] Duration limit() const;

 private:
  Duration least_;
  Duration work_limit_;
  Duration longest_gap_{0};
  Duration last_event_{0};
  std::uint64_t events_ = 0;
  std::optional<StallLook> last_;  // last look since the last event
  Duration last_look_{0};
  Duration report_at_;
};

}  // namespace maestro
