// SPDX-License-Identifier: Apache-2.0
// Judges from looks at a run whether it stands still: nothing computes, nothing moves, nothing ends, though work is
// announced.
//
// SJ-1 (adaptive): the run is looked at when no event has come for `limit()`: the given time, or four times the longest
//       gap between events so far.
// SJ-2 (twice): only two looks in a row, half a limit apart, with the same finding and no event between them end a run.
// SJ-3 (work is no stall): while somebody computes, the run is reported once it took `reports_after` limits, and again
//       whenever that time has doubled; it is never ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages/run_clock.hpp"

namespace maestro {

struct StallLook {
  bool announced = false;            ///< there is work that was announced and has not ended
  std::uint64_t events = 0;          ///< messages that coordinator and replicas have handled
  std::vector<std::string> silent;   ///< actors that did not answer in time
  std::vector<std::string> working;  ///< who computes, prepares or stores
  std::vector<std::string> waiting;  ///< who waits for whom
};

/// Not thread-safe. Times are those of a RunClock.
class StallJudge {
 public:
  using Duration = RunClock::Duration;
  static constexpr int reports_after = 6;

  explicit StallJudge(Duration limit) : least_(limit), report_at_(0) {}

  /// Whether the run should be looked at now. `events`: a counter that every event of the run moves.
  [[nodiscard]] bool wants_look(std::uint64_t events, Duration now);
  /// Judges a look, after wants_look() returned true.
  struct Verdict {
    std::optional<std::string> ended;   ///< the run stands still, in one line
    std::optional<std::string> report;  ///< the run takes long, in one line
  };
  [[nodiscard]] Verdict judge(const StallLook& look, Duration now);

  [[nodiscard]] Duration limit() const;

 private:
  Duration least_;
  Duration longest_gap_{0};
  Duration last_event_{0};
  std::uint64_t events_ = 0;
  std::optional<StallLook> last_;  // since the last event
  Duration last_look_{0};
  Duration report_at_;
};

}  // namespace maestro
