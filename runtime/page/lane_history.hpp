// SPDX-License-Identifier: Apache-2.0
// The use of the lanes' time in a run, step by step, in bounded memory. Pure.
//
// LH-1 (bounded): a history has at most `most` spans, however many steps are added.
// LH-2 (whole): the spans are consecutive steps, and their times add up to the times of all steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace maestro {

/// Times of a lane over consecutive steps.
struct LaneSpan {
  std::uint64_t first_step = 0;
  std::uint64_t last_step = 0;
  double busy_ms = 0;                     ///< time in passes
  double step_end_ms = 0;                 ///< time at the end of steps
  std::map<std::string, double> wait_ms;  ///< waits by section, or by the missing input; "device": for the device
  /// Returns the wait for the device, which worked for other lanes.
  [[nodiscard]] double device_ms() const;
  /// Returns the time of all other waits.
  [[nodiscard]] double waited_ms() const;
  [[nodiscard]] double total_ms() const { return busy_ms + step_end_ms + device_ms() + waited_ms(); }
  /// Appends the steps of a later span.
  void append(const LaneSpan& later);
};

/// Returns "teacher 31%, norm 2%": waits as shares of the total time, the largest first, without the device.
[[nodiscard]] std::string waits_text(const LaneSpan& span);

class LaneHistory {
 public:
  /// `most` is even.
  explicit LaneHistory(std::size_t most = 120) : most_(std::max<std::size_t>(most, 2)) {}
  /// Adds the times of a step; steps rise.
  void add(const LaneSpan& step);
  [[nodiscard]] const std::vector<LaneSpan>& spans() const { return spans_; }

 private:
  std::size_t most_;
  std::size_t width_ = 1;   // steps in a span
  std::size_t filled_ = 0;  // steps in the last span
  std::vector<LaneSpan> spans_;
};

/// A lane of a page.
struct RunLane {
  std::string name;  ///< "section/replica"
  std::vector<LaneSpan> spans;
  [[nodiscard]] std::string section() const { return name.substr(0, name.rfind('/')); }
  [[nodiscard]] LaneSpan total() const;
};

}  // namespace maestro
