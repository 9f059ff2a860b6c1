// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/collective/rank_part.hpp"
#include "runtime/ops/call_checks.hpp"
#include "runtime/ops/head_exchange.hpp"
#include "runtime/ops/parallel_functions.hpp"

namespace maestro {

namespace {

/// Returns the most groups of ranks such that each has as many heads as any other, with complete key heads or within
/// one.
std::int64_t head_groups(const AttentionShape& shape, std::int64_t ranks) {
  const auto fits = [&](std::int64_t groups) {
    return ranks % groups == 0 && shape.heads % groups == 0 &&
           (shape.kv_heads % groups == 0 || groups % shape.kv_heads == 0);
  };
  std::int64_t groups = std::gcd(shape.heads, ranks);
  while (!fits(groups)) --groups;
  return groups;
}

/// Returns in how many steps a rank exchanges its key heads. A single step if ranks do not divide queries; else a step
/// for each of `parts` parts, so that a step's rows take no more memory than the rows of the rank with all heads. The
/// number divides the key heads.
std::int64_t steps_of(std::int64_t key_heads, std::int64_t parts) {
  std::int64_t steps = parts == 1 ? 1 : std::min(parts, key_heads);
  while (key_heads % steps != 0) ++steps;
  return steps;
}

/// Exchanges a context part's rows with all heads for all rows with this rank's heads, and back. The ranks of a head
/// group have the same heads, and each computes a part of the queries, in steps of some key heads with their queries.
class AttentionExchange {
 public:
  AttentionExchange(const AttentionShape& shape, const SequenceLayout& layout, Communicator& context)
      : groups_(head_groups(shape, context.size())),
        queries_{context.rank() % parts_of(context), parts_of(context)},
        steps_(steps_of(std::max<std::int64_t>(1, shape.kv_heads / groups_), queries_.parts)),
        exchange_(layout.rows(), context, {layout.offsets, queries_.parts}),
        shape_(shape),
        own_(shape),
        ranks_(context.size()),
        sharers_(queries_.parts * std::max<std::int64_t>(1, groups_ / shape.kv_heads)),
        first_head_(context.rank() / queries_.parts * (shape.heads / groups_)) {
    own_.heads /= groups_ * steps_;
    own_.kv_heads = std::max<std::int64_t>(1, shape.kv_heads / groups_) / steps_;
  }

  /// Returns the steps, which all ranks take in turn; 1 unless ranks divide queries.
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  /// Returns the shape of attention on this rank, in a step.
  [[nodiscard]] const AttentionShape& own() const { return own_; }
  [[nodiscard]] const QueryPart& queries() const { return queries_; }
  [[nodiscard]] std::int64_t first_head() const { return first_head_; }
  [[nodiscard]] std::int64_t rows() const { return exchange_.rows(); }

  /// Exchanges part (M_c, (H + 2G) D) -> `whole` (M, own().qkv_columns()).
  void qkv_to_heads(const Tensor& part, const Tensor& whole, std::int64_t step = 0) const {
    exchange_.to_heads(part, whole, qkv_blocks(step));
  }
  /// Exchanges gradients `whole` (M, own().qkv_columns()) -> the step's columns of part (M_c, (H + 2G) D): the sums
  /// over the ranks that share a key head, in the order of ranks.
  void qkv_to_rows(Tape& tape, const Tensor& whole, const Tensor& part, std::int64_t step = 0) const {
    if (sharers_ == 1) return exchange_.to_rows(whole, part, qkv_blocks(step));
    const std::int64_t query = own_.out_columns(), key = own_.kv_heads * shape_.head_size, queries = groups_ * query;
    const Block all = tape.scratch({part.rows(), queries + 2 * ranks_ * key}, part.dtype());
    exchange_.to_rows(whole, all.tensor(),
                      {queries_block(query), {queries, query, key}, {queries + ranks_ * key, query + key, key}});
    const auto copy = [&](std::int64_t from, std::int64_t to, std::int64_t columns, bool add) {
      tape.ops().run(CopyColumns{.from = all.tensor(),
                                 .to = part,
                                 .from_column = from,
                                 .to_column = to,
                                 .columns = columns,
                                 .accumulate = add});
    };
    const std::int64_t pieces = steps_ == 1 ? 1 : groups_, piece = queries / pieces;
    for (std::int64_t at = 0; at < pieces; ++at) copy(at * piece, (at * steps_ + step) * piece, piece, false);
    for (std::int64_t at = 0; at < 2 * ranks_; ++at) {  // keys of each rank, then values
      const std::int64_t to = shape_.out_columns() + (at / sharers_ * steps_ + step) * key;
      copy(queries + at * key, to, key, at % sharers_ != 0);
    }
  }
  /// Exchanges part (M_c, H N) -> `whole` (M, own().heads N), N columns a head. Rows that are not the rank's queries
  /// are left out.
  void to_heads(const Tensor& part, const Tensor& whole, std::int64_t step = 0) const {
    exchange_.to_heads(part, whole, {in_step(queries_block(whole.columns()), step)});
  }
  void to_rows(const Tensor& whole, const Tensor& part, std::int64_t step = 0) const {
    exchange_.to_rows(whole, part, {in_step(queries_block(whole.columns()), step)});
  }

 private:
  [[nodiscard]] std::int64_t parts_of(const Communicator& context) const { return context.size() / groups_; }
  /// Returns the first step's block of columns that only queries have.
  [[nodiscard]] HeadBlock queries_block(std::int64_t columns) const {
    return {0, 0, columns, queries_.parts, queries_.parts > 1};
  }
  /// Returns a block of the first step as another step's.
  [[nodiscard]] HeadBlock in_step(HeadBlock block, std::int64_t step) const {
    block.part_column += step * block.columns;
    block.distance = steps_ * block.columns;
    return block;
  }
  [[nodiscard]] std::vector<HeadBlock> qkv_blocks(std::int64_t step) const {
    const std::int64_t size = shape_.head_size, query = own_.out_columns(), key = own_.kv_heads * size;
    return {in_step(queries_block(query), step), in_step({shape_.heads * size, query, key, sharers_}, step),
            in_step({(shape_.heads + shape_.kv_heads) * size, query + key, key, sharers_}, step)};
  }

  std::int64_t groups_;
  QueryPart queries_;
  std::int64_t steps_;
  HeadExchange exchange_;
  AttentionShape shape_;
  AttentionShape own_;
  std::int64_t ranks_;
  std::int64_t sharers_;  // ranks that have the same key head
  std::int64_t first_head_;
};

/// Attention's tensors on this rank's heads in a step: all rows; rows of other query parts have only keys and values.
struct OwnAttention {
  Block qkv;  ///< after rotation
  Block out;
  Block lse;
};

OwnAttention own_attention(Tape& tape, const AttentionExchange& exchange, DType act) {
  const AttentionShape& own = exchange.own();
  return {tape.scratch({exchange.rows(), own.qkv_columns()}, act),
          tape.scratch({exchange.rows(), own.out_columns()}, act),
          tape.scratch({exchange.rows(), own.heads}, DType::f32)};
}

void attend(Tape& tape, const AttentionExchange& exchange, const OwnAttention& own, const SequenceLayout& layout) {
  tape.ops().run(Attention{.qkv = own.qkv.tensor(),
                           .shape = exchange.own(),
                           .layout = layout,
                           .out = own.out.tensor(),
                           .lse = own.lse.tensor(),
                           .queries = exchange.queries()});
}

Block own_gradient(Tape& tape, const AttentionExchange& exchange, const OwnAttention& own, const Tensor& dout,
                   const SequenceLayout& layout) {
  Block dqkv = tape.scratch(own.qkv.tensor().shape(), own.qkv.tensor().dtype());
  tape.ops().run(AttentionBackward{.dout = dout,
                                   .qkv = own.qkv.tensor(),
                                   .out = own.out.tensor(),
                                   .lse = own.lse.tensor(),
                                   .shape = exchange.own(),
                                   .layout = layout,
                                   .dqkv = dqkv.tensor(),
                                   .queries = exchange.queries()});
  return dqkv;
}

/// Attention of complete heads, for which the tape keeps the rank's heads in all rows.
class HeadAttention {
 public:
  HeadAttention(Tape& tape, const AttentionExchange& exchange, const AttentionOptions& options,
                const SequenceLayout& layout, DType act)
      : tape_(&tape),
        exchange_(exchange),
        options_(options),
        layout_(layout),
        own_(own_attention(tape, exchange, act)) {}

  void forward(const Var& qkv, const Var& y) const {
    exchange_.qkv_to_heads(qkv.value(), own_.qkv.tensor());
    rotate(*tape_, own_.qkv.tensor(), options_, exchange_.own(), layout_, +1);
    attend(*tape_, exchange_, own_, layout_);
    add_sinks(*tape_, options_, {exchange_.first_head(), own_.out.tensor(), own_.lse.tensor()});
    exchange_.to_rows(own_.out.tensor(), y.value());
  }
  void backward(const Var& qkv, const Var& y) const {
    const Block dout = tape_->scratch(own_.out.tensor().shape(), own_.out.tensor().dtype());
    exchange_.to_heads(y.gradient(), dout.tensor());
    add_sinks_gradient(*tape_, options_, {exchange_.first_head(), own_.out.tensor(), own_.lse.tensor()}, dout.tensor());
    const Block dheads = own_gradient(*tape_, exchange_, own_, dout.tensor(), layout_);
    rotate(*tape_, dheads.tensor(), options_, exchange_.own(), layout_, -1);
    const Block dqkv = tape_->scratch(qkv.value().shape(), qkv.value().dtype());
    exchange_.qkv_to_rows(*tape_, dheads.tensor(), dqkv.tensor());
    tape_->add_gradient(qkv, dqkv);
  }

 private:
  Tape* tape_;
  AttentionExchange exchange_;
  AttentionOptions options_;
  SequenceLayout layout_;
  OwnAttention own_;
};

/// Attention of query parts, for which the tape keeps nothing but this context part's rows: the backward pass exchanges
/// them again.
class QueryAttention {
 public:
  QueryAttention(Tape& tape, const AttentionExchange& exchange, const AttentionOptions& options,
                 const SequenceLayout& layout, const RankPart& rows)
      : tape_(&tape),
        exchange_(exchange),
        options_(options),
        layout_(layout),
        rows_(layout),
        lse_(tape.scratch({rows.count, options.shape.heads}, DType::f32)) {
    if (options.rotary != nullptr) {
      rows_.positions = layout.positions.subspan(static_cast<std::size_t>(rows.first * layout.axes));
    }
  }

  void forward(const Var& qkv, const Var& y) const {
    rotate(*tape_, qkv.value(), options_, options_.shape, rows_, +1);
    const OwnAttention own = own_attention(*tape_, exchange_, qkv.value().dtype());
    for (std::int64_t step = 0; step < exchange_.steps(); ++step) {
      exchange_.qkv_to_heads(qkv.value(), own.qkv.tensor(), step);
      attend(*tape_, exchange_, own, layout_);
      exchange_.to_rows(own.out.tensor(), y.value(), step);
      exchange_.to_rows(own.lse.tensor(), lse_.tensor(), step);
    }
    add_sinks(*tape_, options_, {0, y.value(), lse_.tensor()});
  }
  void backward(const Var& qkv, const Var& y) const {
    add_sinks_gradient(*tape_, options_, {0, y.value(), lse_.tensor()}, y.gradient());
    const Block dqkv = tape_->scratch(qkv.value().shape(), qkv.value().dtype());
    for (std::int64_t step = 0; step < exchange_.steps(); ++step)
      differentiate_step(qkv.value(), y, dqkv.tensor(), step);
    rotate(*tape_, dqkv.tensor(), options_, options_.shape, rows_, -1);
    tape_->add_gradient(qkv, dqkv);
  }

 private:
  /// Computes the gradient of a step's columns.
  void differentiate_step(const Tensor& qkv, const Var& y, const Tensor& dqkv, std::int64_t step) const {
    const OwnAttention own = own_attention(*tape_, exchange_, qkv.dtype());
    const Block dout = tape_->scratch(own.out.tensor().shape(), qkv.dtype());
    exchange_.qkv_to_heads(qkv, own.qkv.tensor(), step);
    exchange_.to_heads(y.value(), own.out.tensor(), step);
    exchange_.to_heads(lse_.tensor(), own.lse.tensor(), step);
    exchange_.to_heads(y.gradient(), dout.tensor(), step);
    exchange_.qkv_to_rows(*tape_, own_gradient(*tape_, exchange_, own, dout.tensor(), layout_).tensor(), dqkv, step);
  }

  Tape* tape_;
  AttentionExchange exchange_;
  AttentionOptions options_;
  SequenceLayout layout_;
  SequenceLayout rows_;  // of this part's positions
  Block lse_;            // (M_c, H)
};

template <class Computation>
Var recorded(Tape& tape, const Var& qkv, const AttentionShape& shape, const Computation& computation) {
  const Tensor& in = qkv.value();
  Var y = tape.output({in.rows(), shape.out_columns()}, in.dtype(), qkv.needs_gradient());
  computation.forward(qkv, y);
  if (y.needs_gradient()) tape.record(y, [computation, qkv, y] { computation.backward(qkv, y); });
  return y;
}

}  // namespace

Var context_attention(Tape& tape, const Var& qkv, const AttentionOptions& options, const SequenceLayout& layout,
                      Communicator* context) {
  if (context == nullptr) return attention(tape, qkv, options, layout);
  const RankPart rows = rank_part(layout.rows(), *context);
  check_attention("context_attention", qkv.value(), options, layout, rows.count);
  const AttentionExchange exchange(options.shape, layout, *context);
  if (exchange.queries().parts > 1) {
    return recorded(tape, qkv, options.shape, QueryAttention(tape, exchange, options, layout, rows));
  }
  return recorded(tape, qkv, options.shape, HeadAttention(tape, exchange, options, layout, qkv.value().dtype()));
}

}  // namespace maestro
