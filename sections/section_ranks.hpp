// SPDX-License-Identifier: Apache-2.0
// A section's use of its place among a replica's ranks: its part of a parameter, and gathered rows if the full width of
// a context part is needed. On a single rank all of it is free: parameters are complete and values pass through.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/ops/parallel_functions.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Slices of a rank's parameters in its tensor group; complete if the group has a single rank.
class TensorCut {
 public:
  explicit TensorCut(const ParallelContext& parallel) : parts_(parallel.layout.tensor), own_(parallel.tensor()) {}

  /// Returns the rank's part of `count` rows in a column-parallel weight, its bias, or a table cut over the vocabulary.
  [[nodiscard]] ParameterSlice rows(std::int64_t count) const { return stacked({count}); }
  /// Returns the rank's part of each weight of several that are stacked in a parameter, such as [query | key | value].
  [[nodiscard]] ParameterSlice stacked(const std::vector<std::int64_t>& heights) const;
  /// Returns the rank's part of `count` columns of a row-parallel weight, whose bias is not cut.
  [[nodiscard]] ParameterSlice columns(std::int64_t count) const;

 private:
  std::int64_t parts_;
  std::int64_t own_;
};

/// Returns the rows of a rank's own experts in a weight of `count` experts with `height` rows each, if a layer's
/// experts are shared by ranks (Layout::expert).
[[nodiscard]] ParameterSlice own_experts(const ParallelContext& parallel, std::int64_t count, std::int64_t height);
/// Returns the micro-batch's rows whose experts the rank chooses: the rows of its context part, or, if ranks share the
/// experts, only the rank's rows.
[[nodiscard]] RowRange routed_rows(const ParallelContext& parallel, const SequenceLayout& layout);

/// Returns the rank's part of a table or an output layer over `vocabulary`, as TensorCut::rows cuts it.
[[nodiscard]] VocabularyPart vocabulary_part(const ParallelContext& parallel, std::int64_t vocabulary);

/// Returns the micro-batch's rows in the rank's context part: Sharding::context_rows.
[[nodiscard]] RowRange context_rows(const ParallelContext& parallel, const SequenceLayout& layout);

/// Gathers a value of Sharding::rank_rows, (M_t, C), to Sharding::context_rows, (M_c, C); `layout` is the
/// micro-batch's.
[[nodiscard]] Var gathered(Tape& tape, const Var& x, const ParallelContext& parallel, const SequenceLayout& layout);

/// Reports the losses of a context part, which all its tensor ranks hold, from the first of them.
void report_losses(Outputs& outputs, const Pending<LossSums>& sums, bool with_teacher, const ParallelContext& parallel);

}  // namespace maestro
