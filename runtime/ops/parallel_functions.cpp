// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/parallel_functions.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "runtime/collective/rank_part.hpp"
#include "runtime/ops/call_checks.hpp"

namespace maestro {

Var all_gather_rows(Tape& tape, const Var& x, Communicator* group, std::int64_t rows) {
  if (group == nullptr) return x;
  const Tensor& part = x.value();
  check_part("all_gather_rows", part, rank_part(rows, *group).count);
  Var y = tape.output({rows, part.columns()}, part.dtype(), x.needs_gradient());
  group->all_gather_rows(part, y.value());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, group] {
    const Block dx = tape.scratch(x.value().shape(), x.value().dtype());
    group->reduce_scatter_rows(y.gradient(), dx.tensor());
    tape.add_gradient(x, dx);
  });
  return y;
}

Var reduce_scatter_rows(Tape& tape, const Var& x, Communicator* group) {
  if (group == nullptr) return x;
  const Tensor& whole = x.value();
  const std::int64_t rows = rank_part(whole.rows(), *group).count;
  Var y = tape.output({rows, whole.columns()}, whole.dtype(), x.needs_gradient());
  group->reduce_scatter_rows(whole, y.value());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, group] {
    const Block dx = tape.scratch(x.value().shape(), x.value().dtype());
    group->all_gather_rows(y.gradient(), dx.tensor());
    tape.add_gradient(x, dx);
  });
  return y;
}

Var copy_to_group(Tape& tape, const Var& x, Communicator* group) {
  if (group == nullptr || !x.needs_gradient()) return x;
  // Runs after the backward steps of all operators recorded after this, on the gradient that they added to x.
  tape.record(x, [&tape, x, group] {
    const Tape::Target dx = tape.gradient_target(x);
    if (dx.tensor.dtype() == DType::f32) return group->all_reduce_sum(dx.tensor.span<float>());
    const Block sum = tape.scratch(dx.tensor.shape(), DType::f32);
    tape.ops().run(Cast{.from = dx.tensor, .to = sum.tensor()});
    group->all_reduce_sum(sum.tensor().span<float>());
    tape.ops().run(Cast{.from = sum.tensor(), .to = dx.tensor});
  });
  return x;
}

std::vector<HaloPart> halo_parts(std::span<const std::int32_t> offsets, std::int64_t ranks, std::int64_t reach) {
  const std::int64_t rows = offsets.empty() ? 0 : offsets.back();
  std::vector<HaloPart> parts;
  for (std::int64_t to = 0; to < ranks; ++to) {
    const RankPart own = rank_part(rows, ranks, to);
    if (own.count == 0) continue;
    const std::int64_t sample = *std::prev(std::ranges::upper_bound(offsets, own.first));
    const std::int64_t begin = std::max(sample, own.first - reach);
    for (std::int64_t from = 0; from < to; ++from) {
      const RankPart other = rank_part(rows, ranks, from);
      const std::int64_t first = std::max(begin, other.first);
      const std::int64_t count = std::min(own.first, other.first + other.count) - first;
      if (count > 0) parts.push_back({from, to, {first, count}});
    }
  }
  return parts;
}

namespace {

/// Exchanges rows that the first rows of other context parts read, and their gradients.
class RowHalo {
 public:
  RowHalo(const ConvolutionShape& shape, const Tensor& x, const SequenceLayout& layout, Communicator& context)
      : context_(&context), own_(rank_part(layout.rows(), context)), read_(shape.read_columns(x.columns())) {
    // With gates x is [in_gate | out_gate | x]; the filter reads its first and its last third.
    const std::int64_t channels = shape.channels(x.columns());
    columns_ = {0};
    if (shape.gated) columns_.push_back(2 * channels);
    width_ = channels;
    for (const HaloPart& part : halo_parts(layout.offsets, context.size(), shape.reach())) {
      if (part.to == context.rank()) received_.push_back(part);
      if (part.from == context.rank()) sent_.push_back(part);
    }
  }

  /// Returns the shape of the rows that this rank receives, and of their gradients that come back.
  [[nodiscard]] Shape before() const { return {rows(received_), read_}; }
  [[nodiscard]] Shape returned() const { return {rows(sent_), read_}; }
  [[nodiscard]] std::int64_t first() const { return own_.first; }

  void exchange(const Tensor& x, const Tensor& before) const {
    context_->exchange(x, blocks_of_rows(), before, stacked_blocks(received_, &HaloPart::from));
  }
  void exchange_back(const Tensor& dbefore, const Tensor& returned) const {
    context_->exchange(dbefore, stacked_blocks(received_, &HaloPart::from), returned,
                       stacked_blocks(sent_, &HaloPart::to));
  }
  /// Adds what came back to the gradient of x.
  void add_returned(const OperatorTable& ops, const Tensor& returned, const Tensor& dx) const {
    std::int64_t row = 0;
    for (const HaloPart& part : sent_) {
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        ops.run(CopyColumns{.from = returned.row_slice(row, part.rows.count),
                            .to = dx.row_slice(part.rows.first - own_.first, part.rows.count),
                            .from_column = static_cast<std::int64_t>(i) * width_,
                            .to_column = columns_[i],
                            .columns = width_,
                            .accumulate = true});
      }
      row += part.rows.count;
    }
  }

 private:
  static std::int64_t rows(const std::vector<HaloPart>& parts) {
    std::int64_t sum = 0;
    for (const HaloPart& part : parts) sum += part.rows.count;
    return sum;
  }
  /// Returns the blocks in a tensor of this rank's rows: what each later rank reads.
  [[nodiscard]] std::vector<BlockTransfer> blocks_of_rows() const {
    std::vector<BlockTransfer> blocks;
    for (const HaloPart& part : sent_) {
      for (const std::int64_t column : columns_) {
        blocks.push_back({part.to, {part.rows.first - own_.first, part.rows.count, column, width_}});
      }
    }
    return blocks;
  }
  /// Returns the blocks in a tensor whose rows are the parts, one after another.
  [[nodiscard]] std::vector<BlockTransfer> stacked_blocks(const std::vector<HaloPart>& parts,
                                                          std::int64_t HaloPart::*peer) const {
    std::vector<BlockTransfer> blocks;
    std::int64_t row = 0;
    for (const HaloPart& part : parts) {
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        blocks.push_back({part.*peer, {row, part.rows.count, static_cast<std::int64_t>(i) * width_, width_}});
      }
      row += part.rows.count;
    }
    return blocks;
  }

  Communicator* context_;
  RankPart own_;
  std::int64_t read_;
  std::int64_t width_ = 0;             // columns of a block: N
  std::vector<std::int64_t> columns_;  // first columns of the blocks in x
  std::vector<HaloPart> received_;
  std::vector<HaloPart> sent_;
};

/// Returns the rows before this rank's that its first rows read; their gradient is added where they lie.
Var rows_before(Tape& tape, const Var& x, const RowHalo& halo) {
  Var before = tape.output(halo.before(), x.value().dtype(), x.needs_gradient());
  halo.exchange(x.value(), before.value());
  tape.record(before, [&tape, x, before, halo] {
    const Block returned = tape.scratch(halo.returned(), x.value().dtype());
    halo.exchange_back(before.gradient(), returned.tensor());
    const Tape::Target dx = tape.gradient_target(x);
    if (!dx.accumulate) tape.ops().zero(dx.tensor);
    halo.add_returned(tape.ops(), returned.tensor(), dx.tensor);
  });
  return before;
}

}  // namespace

Var context_conv(Tape& tape, const Var& x, const Affine& filter, const ConvolutionShape& shape,
                 const SequenceLayout& layout, Communicator* context) {
  if (context == nullptr) return causal_conv(tape, x, filter, shape, layout);
  check_part("context_conv", x.value(), rank_part(layout.rows(), *context).count);
  const RowHalo halo(shape, x.value(), layout, *context);
  return causal_conv(tape, x, filter, shape, layout, {halo.first(), rows_before(tape, x, halo)});
}

namespace {

/// Runs a norm or its backward pass; between sums and values the ranks of `group` add up their sums.
template <class Call>
void run_over_ranks(const OperatorTable& ops, Call call, const Tensor& sums, Tensor Call::*result,
                    Communicator* group) {
  if (group == nullptr) return ops.run(call);
  call.ranks = group->size();
  const Tensor values = std::exchange(call.*result, Tensor());
  call.phase = HeadNormPhase::sums;
  ops.run(call);
  group->all_reduce_sum(sums.span<float>());
  call.*result = values;
  call.phase = HeadNormPhase::values;
  ops.run(call);
}

}  // namespace

Var head_norm(Tape& tape, const Var& qkv, const HeadNorms& norms, const AttentionShape& shape, Communicator* group) {
  Communicator* const summed = norms.whole ? group : nullptr;
  const std::int64_t rows = qkv.value().rows();
  const Shape groups{rows, norms.whole ? 2 : shape.heads + shape.kv_heads};
  Parameter& query = *norms.query;
  Parameter& key = *norms.key;
  check_head_norm(qkv.value(), query, key, shape, norms.whole);
  Var y =
      tape.output(qkv.value().shape(), qkv.value().dtype(), qkv.needs_gradient() || query.trained() || key.trained());
  const Block sums = tape.scratch(groups, DType::f32);
  const HeadNorm forward{.x = qkv.value(),
                         .shape = shape,
                         .query_weight = query.value(),
                         .key_weight = key.value(),
                         .epsilon = norms.epsilon,
                         .offset = norms.offset,
                         .whole = norms.whole,
                         .sums = sums.tensor(),
                         .y = y.value()};
  run_over_ranks(tape.ops(), forward, sums.tensor(), &HeadNorm::y, summed);
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, qkv, y, norms, shape, sums, groups, summed] {
    const Block dots = tape.scratch(groups, DType::f32);
    const Block dx = tape.scratch(qkv.value().shape(), qkv.value().dtype());
    const HeadNormBackward backward{.dy = y.gradient(),
                                    .x = qkv.value(),
                                    .shape = shape,
                                    .query_weight = norms.query->value(),
                                    .key_weight = norms.key->value(),
                                    .epsilon = norms.epsilon,
                                    .offset = norms.offset,
                                    .whole = norms.whole,
                                    .sums = sums.tensor(),
                                    .dots = dots.tensor(),
                                    .dx = dx.tensor(),
                                    .dquery_weight = norms.query->gradient(),
                                    .dkey_weight = norms.key->gradient()};
    run_over_ranks(tape.ops(), backward, dots.tensor(), &HeadNormBackward::dx, summed);
    tape.add_gradient(qkv, dx);
  });
  return y;
}

Var embedding_part(Tape& tape, Parameter& table, const Tensor& ids, Parameter* positions_table,
                   std::span<const std::int32_t> positions, const VocabularyPart& part, double scale) {
  if (part.group == nullptr)
    return embedding(tape, table, ids, positions_table, {.offsets = {}, .positions = positions}, scale);
  check_embedding(ids, table, positions_table, positions.size());
  if (part.group->rank() != 0) positions_table = nullptr;
  const Block own_ids = tape.scratch({ids.elements()}, DType::i32);
  tape.ops().run(ShiftIds{.ids = ids, .by = -part.first, .limit = table.shape()[0], .out = own_ids.tensor()});
  Var y = tape.output({ids.elements(), table.shape().columns()}, DType::f32, table.trained());
  tape.ops().run(Embedding{.table = table.value(),
                           .packed = table.packed_rows(tape.ops(), tape.compute()),
                           .ids = own_ids.tensor(),
                           .positions_table = positions_table == nullptr ? Tensor() : positions_table->value(),
                           .positions = positions,
                           .y = y.value(),
                           .scale = scale});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, &table, own_ids, positions_table, positions, y, scale] {
    tape.ops().run(EmbeddingBackward{.dy = y.gradient(),
                                     .ids = own_ids.tensor(),
                                     .positions = positions,
                                     .dtable = table.gradient(),
                                     .dpositions = positions_table == nullptr ? Tensor() : positions_table->gradient(),
                                     .scale = scale});
  });
  return y;
}

}  // namespace maestro
