// SPDX-License-Identifier: Apache-2.0
// Counts the samples of a run by step, in memory that does not grow with the number of steps. Pure.
//
// SX-1 (exact sums): totals() is the sum over all steps that go_back() has not removed, whatever steps were summed up
//       before.
#pragma once

#include <cstdint>
#include <map>

namespace maestro {

/// Samples of a training step.
struct StepSamples {
  std::uint64_t read = 0;
  std::uint64_t trained = 0;
  std::uint64_t tokens = 0;  ///< tokens of the samples read
};

/// Not thread-safe.
class SampleCounts {
 public:
  /// Returns the counts of a step that is not summed up.
  StepSamples& operator[](std::uint64_t step) { return steps_[step]; }
  /// Sums up the steps up to `step` except the most recent ones: their counts no longer change.
  void settle(std::uint64_t step);
  /// Keeps the sums up to `step`, which has a checkpoint, so that the run can go back to it.
  void mark(std::uint64_t step);
  /// Removes the steps after `step`, since they are done again, but keeps the trained samples of steps up to `until`.
  /// `step` has a mark, or the run began after it.
  void go_back(std::uint64_t step, std::uint64_t until);
  /// Returns the sums of all steps; tokens up to `last_step` only.
  [[nodiscard]] StepSamples totals(std::uint64_t last_step) const;
  /// Returns the number of steps and marks in memory.
  [[nodiscard]] std::size_t held() const { return steps_.size() + marks_.size(); }

 private:
  [[nodiscard]] StepSamples sum_until(std::uint64_t step) const;

  std::map<std::uint64_t, StepSamples> steps_;  // steps that are not summed up
  StepSamples settled_;                         // sum of the earlier steps
  std::uint64_t settled_until_ = 0;
  std::map<std::uint64_t, StepSamples> marks_;  // sums up to the step of each checkpoint
  std::uint64_t partly_ = 0;  // steps after it are not summed up: some sections have trained ahead; 0: none have
};

}  // namespace maestro
