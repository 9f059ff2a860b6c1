// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/delta_functions.hpp"

#include <optional>
#include <stdexcept>
#include <string>

#include "runtime/collective/rank_part.hpp"
#include "runtime/ops/call_checks.hpp"
#include "runtime/ops/head_exchange.hpp"

namespace maestro {

namespace {

/// The heads that a rank computes, and the exchanges that bring them there; without a group all of them.
class DeltaHeads {
 public:
  DeltaHeads(const DeltaShape& shape, std::int64_t rows, Communicator* context) : all_(shape), own_(shape) {
    if (context == nullptr) return;
    const std::int64_t ranks = context->size();
    if (shape.key_heads % ranks != 0) {
      throw ShapeError("delta_rule: " + std::to_string(shape.key_heads) + " key heads cannot be shared by " +
                       std::to_string(ranks) + " ranks");
    }
    exchange_.emplace(rows, *context);
    own_.key_heads /= ranks;
    own_.value_heads /= ranks;
    first_ = context->rank() * own_.value_heads;
  }

  [[nodiscard]] bool exchanged() const { return exchange_.has_value(); }
  [[nodiscard]] std::int64_t rows(const Tensor& part) const { return exchanged() ? exchange_->rows() : part.rows(); }
  [[nodiscard]] const DeltaShape& own() const { return own_; }
  /// Returns the rank's heads of a value by value head; undefined stays undefined.
  [[nodiscard]] Tensor of_heads(const Tensor& values) const {
    return values.defined() ? values.flat_slice(first_, own_.value_heads) : values;
  }

  [[nodiscard]] std::vector<HeadBlock> qkv() const {
    const std::int64_t key = own_.key_columns();
    return {{0, 0, key}, {all_.key_columns(), key, key}, {2 * all_.key_columns(), 2 * key, own_.value_columns()}};
  }
  [[nodiscard]] std::vector<HeadBlock> gates() const {
    const std::int64_t heads = own_.value_heads;
    return {{0, 0, heads}, {all_.value_heads, heads, heads}};
  }
  [[nodiscard]] std::vector<HeadBlock> out() const { return {{0, 0, own_.value_columns()}}; }

  /// Returns the rank's heads in all rows.
  [[nodiscard]] Block to_heads(Tape& tape, const Tensor& part, std::int64_t columns,
                               const std::vector<HeadBlock>& heads) const {
    Block whole = tape.scratch({exchange_->rows(), columns}, part.dtype());
    exchange_->to_heads(part, whole.tensor(), heads);
    return whole;
  }
  void to_rows(const Tensor& whole, const Tensor& part, const std::vector<HeadBlock>& heads) const {
    exchange_->to_rows(whole, part, heads);
  }

 private:
  std::optional<HeadExchange> exchange_;
  DeltaShape all_;
  DeltaShape own_;
  std::int64_t first_ = 0;
};

/// Adds the gradient of `of` that `write` makes, by heads.
template <class Write>
void delta_gradient(Tape& tape, const DeltaHeads& heads, const Var& qkv, const Var& gates, const Write& write) {
  const DeltaShape& own = heads.own();
  const std::int64_t rows = heads.rows(qkv.value());
  const Block dqkv = tape.scratch({rows, own.qkv_columns()}, qkv.value().dtype());
  const Block dgates = tape.scratch({rows, 2 * own.value_heads}, gates.value().dtype());
  write(dqkv.tensor(), dgates.tensor());
  const auto add = [&](const Var& to, const Block& whole, const std::vector<HeadBlock>& blocks) {
    if (!to.needs_gradient()) return;
    if (!heads.exchanged()) return tape.add_gradient(to, whole);
    const Block part = tape.scratch(to.value().shape(), to.value().dtype());
    heads.to_rows(whole.tensor(), part.tensor(), blocks);
    tape.add_gradient(to, part);
  };
  add(qkv, dqkv, heads.qkv());
  add(gates, dgates, heads.gates());
}

}  // namespace

Var delta_rule(Tape& tape, const Var& qkv, const Var& gates, const DeltaWeights& weights, const DeltaShape& shape,
               const SequenceLayout& layout, Communicator* context) {
  check_delta("delta_rule", qkv.value(), gates.value(), *weights.a_log, *weights.dt_bias, shape);
  if (context == nullptr) {
    check_samples("delta_rule", qkv.value(), layout);
  } else {
    check_part("delta_rule", qkv.value(), rank_part(layout.rows(), *context).count);
  }
  const DeltaHeads heads(shape, layout.rows(), context);
  const DeltaShape& own = heads.own();
  const DType act = qkv.value().dtype();
  Parameter &a_log = *weights.a_log, &dt_bias = *weights.dt_bias;
  Block own_qkv, own_gates, own_out, states;
  if (heads.exchanged()) {
    own_qkv = heads.to_heads(tape, qkv.value(), own.qkv_columns(), heads.qkv());
    own_gates = heads.to_heads(tape, gates.value(), 2 * own.value_heads, heads.gates());
    own_out = tape.scratch({layout.rows(), own.value_columns()}, act);
  }
  Var y = tape.output({qkv.value().rows(), shape.value_columns()}, act,
                      qkv.needs_gradient() || gates.needs_gradient() || a_log.trained() || dt_bias.trained());
  if (y.needs_gradient()) {
    states = tape.scratch(
        {delta_state_place(layout.rows(), layout.sequences()), own.value_heads * own.key_size * own.value_size},
        DType::f32);
  }
  const Tensor none;
  tape.ops().run(DeltaRule{.qkv = heads.exchanged() ? own_qkv.tensor() : qkv.value(),
                           .gates = heads.exchanged() ? own_gates.tensor() : gates.value(),
                           .a_log = heads.of_heads(a_log.value()),
                           .dt_bias = heads.of_heads(dt_bias.value()),
                           .shape = own,
                           .layout = layout,
                           .out = heads.exchanged() ? own_out.tensor() : y.value(),
                           .states = states.defined() ? states.tensor() : none});
  if (heads.exchanged()) heads.to_rows(own_out.tensor(), y.value(), heads.out());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, heads, qkv, gates, own_qkv, own_gates, states, y, &a_log, &dt_bias, layout] {
    const DeltaShape& mine = heads.own();
    const Block dout =
        heads.exchanged() ? heads.to_heads(tape, y.gradient(), mine.value_columns(), heads.out()) : Block();
    delta_gradient(tape, heads, qkv, gates, [&](const Tensor& dqkv, const Tensor& dgates) {
      tape.ops().run(DeltaRuleBackward{.dout = heads.exchanged() ? dout.tensor() : y.gradient(),
                                       .qkv = heads.exchanged() ? own_qkv.tensor() : qkv.value(),
                                       .gates = heads.exchanged() ? own_gates.tensor() : gates.value(),
                                       .a_log = heads.of_heads(a_log.value()),
                                       .dt_bias = heads.of_heads(dt_bias.value()),
                                       .states = states.tensor(),
                                       .shape = mine,
                                       .layout = layout,
                                       .dqkv = dqkv,
                                       .dgates = dgates,
                                       .da_log = heads.of_heads(a_log.gradient()),
                                       .ddt_bias = heads.of_heads(dt_bias.gradient())});
    });
  });
  return y;
}

Var cached_delta(Tape& tape, const Var& qkv, const Var& gates, const DeltaWeights& weights, const DeltaShape& shape,
                 const LayerCache& cache) {
  if (tape.recording()) throw std::logic_error("cached_delta: takes a tape without a record");
  check_delta("cached_delta", qkv.value(), gates.value(), *weights.a_log, *weights.dt_bias, shape);
  check_delta_state(qkv.value(), shape, cache);
  Var y = tape.output({qkv.value().rows(), shape.value_columns()}, qkv.value().dtype(), false);
  tape.ops().run(CachedDelta{.qkv = qkv.value(),
                             .gates = gates.value(),
                             .a_log = weights.a_log->value(),
                             .dt_bias = weights.dt_bias->value(),
                             .shape = shape,
                             .state = cache.state,
                             .first = cache.first,
                             .out = y.value(),
                             .sequences = cache.state_sequences});
  return y;
}

}  // namespace maestro
