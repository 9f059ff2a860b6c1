// SPDX-License-Identifier: Apache-2.0
#include "sections/section_ranks.hpp"

namespace maestro {

ParameterSlice TensorCut::stacked(const std::vector<std::int64_t>& heights) const {
  if (parts_ == 1) return {};
  ParameterSlice slice;
  std::int64_t before = 0;
  for (const std::int64_t height : heights) {
    const RowRange own = row_part(height, parts_, own_);
    slice.rows.push_back({before + own.first, own.count});
    before += height;
  }
  return slice;
}

ParameterSlice TensorCut::columns(std::int64_t count) const {
  if (parts_ == 1) return {};
  const RowRange own = row_part(count, parts_, own_);
  return {{}, {own.first, own.count}};
}

ParameterSlice own_experts(const ParallelContext& parallel, std::int64_t count, std::int64_t height) {
  if (parallel.layout.expert == 1) return {};
  const RowRange own = row_part(count, parallel.layout.expert, parallel.layout.expert_of(parallel.rank));
  return {{{own.first * height, own.count * height}}, {}, true};
}

RowRange routed_rows(const ParallelContext& parallel, const SequenceLayout& layout) {
  const Sharding sharding = parallel.layout.expert > 1 ? Sharding::rank_rows : Sharding::context_rows;
  return parallel.layout.rows(sharding, layout.rows(), parallel.rank);
}

VocabularyPart vocabulary_part(const ParallelContext& parallel, std::int64_t vocabulary) {
  return {parallel.tensor_group, vocabulary, row_part(vocabulary, parallel.layout.tensor, parallel.tensor()).first};
}

RowRange context_rows(const ParallelContext& parallel, const SequenceLayout& layout) {
  return row_part(layout.rows(), parallel.layout.context, parallel.context());
}

Var gathered(Tape& tape, const Var& x, const ParallelContext& parallel, const SequenceLayout& layout) {
  return all_gather_rows(tape, x, parallel.tensor_group, context_rows(parallel, layout).count);
}

void report_losses(Outputs& outputs, const Pending<LossSums>& sums, bool with_teacher,
                   const ParallelContext& parallel) {
  if (parallel.tensor() == 0) outputs.losses(sums, with_teacher);
}

}  // namespace maestro
