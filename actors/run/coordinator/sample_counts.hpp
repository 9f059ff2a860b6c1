// SPDX-License-Identifier: Apache-2.0
// Counts the samples of a run by its steps, in memory that does not grow with them. Pure.
//
// SX-1 (exact sums): totals() is the sum over all steps, each as often as it stands after go_back(), whatever steps
//       were summed up before.
#pragma once

#include <cstdint>
#include <map>

namespace maestro {

/// Samples of a training step.
struct StepCounts {
  std::uint64_t read = 0;
  std::uint64_t trained = 0;
  std::uint64_t tokens = 0;  ///< of the samples read
};

/// Not thread-safe.
class SampleCounts {
 public:
  /// Returns the counts of a step that is not summed up.
  StepCounts& operator[](std::uint64_t step) { return steps_[step]; }
  /// Sums up the steps up to `step` but for the last of them: their counts no longer change.
  void settle(std::uint64_t step);
  /// The run may go back to after `step`, which has a checkpoint.
  void mark(std::uint64_t step);
  /// Removes the steps after `step`, which had a mark or is where the run began, as they are done again. Of the steps
  /// up to `until` the samples trained stay.
  void go_back(std::uint64_t step, std::uint64_t until);
  /// Returns the sums of all steps; tokens up to `last_step` only.
  [[nodiscard]] StepCounts totals(std::uint64_t last_step) const;
  /// Returns the number of steps and marks in memory.
  [[nodiscard]] std::size_t held() const { return steps_.size() + marks_.size(); }

 private:
  [[nodiscard]] StepCounts sum_until(std::uint64_t step) const;

  std::map<std::uint64_t, StepCounts> steps_;  // that are not summed up
  StepCounts settled_;                         // sum of the steps before
  std::uint64_t settled_until_ = 0;
  std::map<std::uint64_t, StepCounts> marks_;  // sums up to the step of each checkpoint
  std::uint64_t partly_ = 0;                   // after this step some are trained ahead: none is summed up; 0: none
};

}  // namespace maestro
