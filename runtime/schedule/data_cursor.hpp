// SPDX-License-Identifier: Apache-2.0
// Sampler positions that each training step reads. Pure.
//
// DC-1 (once or left out): every position is read by one step exactly, or was left out by skip().
// DC-2 (from the segments): the segments determine the positions of every step, for a resumed run as for the run
//       before it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// Maps steps to positions: a segment's first position + (step - its first step) * global batch.
class DataCursor {
 public:
  /// {first step, first position}
  using Segment = std::array<std::uint64_t, 2>;

  /// Starts from position 0 at step 1, without a gap.
  DataCursor() = default;
  /// Returns the cursor with these segments; none: the cursor without a gap. Errors (corrupt): steps that do not rise
  /// from 1, positions that do not rise.
  [[nodiscard]] static Result<DataCursor> of(std::vector<Segment> segments);

  /// Returns the first position of a step, from 1 on.
  [[nodiscard]] std::uint64_t position(std::uint64_t step, std::uint64_t global_batch) const;
  /// Leaves out the positions of the next `steps` steps from `step` on: the step reads the positions after them.
  /// Earlier gaps stay. The run has the same global batch from the first step on.
  void skip(std::uint64_t step, std::uint64_t steps, std::uint64_t global_batch);
  /// Returns whether all steps up to `step` have the same positions as in `other`.
  [[nodiscard]] bool agrees(const DataCursor& other, std::uint64_t step) const;
  [[nodiscard]] const std::vector<Segment>& segments() const { return segments_; }

 private:
  std::vector<Segment> segments_{{1, 0}};
};

}  // namespace maestro
