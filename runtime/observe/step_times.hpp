// SPDX-License-Identifier: Apache-2.0
// The time of a step in a run's steady state, against its lower bound. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

namespace maestro {

/// Medians in milliseconds.
struct SteadyStep {
  double step_ms = 0;         ///< from the end of a step to the end of the next
  double lower_bound_ms = 0;  ///< least makespan of a step by itself
  std::size_t steps = 0;      ///< number of steps
  [[nodiscard]] double over_bound() const { return step_ms / lower_bound_ms; }
};

/// Keeps the last steps, so its memory is bounded. Not thread-safe.
class StepTimes {
 public:
  static constexpr std::size_t most = 512;
  void add(double step_ms, double lower_bound_ms);
  /// Returns the medians of the last steps; nothing without a step that has both times.
  [[nodiscard]] std::optional<SteadyStep> steady() const;

 private:
  std::deque<double> steps_ms_, bounds_ms_;
};

}  // namespace maestro
