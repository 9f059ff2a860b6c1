// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/delta/delta_rule.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "runtime/ops/cpu/delta/delta_kernels.hpp"
#include "runtime/ops/cpu/operands.hpp"

namespace maestro::cpu {

namespace {

constexpr std::int64_t padded(std::int64_t columns) {
  return (columns + delta_padding - 1) / delta_padding * delta_padding;
}

/// Working memory and arguments of a call.
class DeltaHeads {
 public:
  template <class Op>
  DeltaHeads(const Op& op, ScratchPool::Lease& lease, bool backward)
      : qkv_(op.qkv),
        gates_(op.gates),
        a_log_(op.a_log.template data<float>()),
        dt_bias_(op.dt_bias.template data<float>()),
        shape_(op.shape) {
    assert(op.qkv.columns() == shape_.qkv_columns() && op.gates.columns() == 2 * shape_.value_heads);
    assert(op.a_log.elements() == shape_.value_heads && op.dt_bias.elements() == shape_.value_heads);
    assert(op.gates.dtype() == op.qkv.dtype() && op.gates.rows() == op.qkv.rows());
    const std::int64_t key = padded(shape_.key_size), value = padded(shape_.value_size);
    tiles_.key_row = key;
    tiles_.value_row = value;
    const auto take = [&](std::int64_t elements, auto&... tiles) { ((tiles = lease.floats(elements)), ...); };
    DeltaTiles& t = tiles_;
    take(delta_chunk * key, t.q, t.k, t.weighted, t.k_transposed);
    take(delta_chunk * delta_chunk, t.kk, t.qk, t.a, t.p);
    take(delta_chunk * value, t.v, t.n, t.out);
    take(delta_chunk, t.lengths_q, t.lengths_k, t.beta, t.g, t.c, t.e, t.until_end);
    take(heads() * key * value, t.state);
    if (!backward) return;
    take(delta_chunk * value, t.dout, t.dr, t.n_transposed);
    take(value * key, t.state_transposed);
    take(delta_chunk * key, t.dq, t.dk, t.by_query, t.by_key, t.by_end);
    take(delta_chunk * delta_chunk, t.dp, t.h);
    take(delta_chunk, t.dc, t.dbeta);
    take(heads() * key * value, t.dstate);
  }

  [[nodiscard]] const DeltaTiles& tiles() const { return tiles_; }
  [[nodiscard]] const DeltaShape& shape() const { return shape_; }
  /// Returns the value heads of a key head.
  [[nodiscard]] std::int64_t heads() const { return shape_.value_heads / shape_.key_heads; }
  [[nodiscard]] DeltaChunk chunk(std::int64_t key_head, std::int64_t first, std::int64_t rows) const {
    return {shape_, key_head, rows, in(qkv_.row_slice(first, rows)), in(gates_.row_slice(first, rows)),
            a_log_, dt_bias_};
  }
  void clear(float* state) const {
    std::memset(state, 0, static_cast<std::size_t>(heads() * tiles_.key_row * tiles_.value_row) * sizeof(float));
  }
  /// Copies a key head's states from or to rows of all heads' states, (Hv dk dv).
  void load(const float* states, std::int64_t key_head) const {
    clear(tiles_.state);
    each_row(key_head, [&](std::int64_t at, float* row) { std::copy_n(states + at, shape_.value_size, row); });
  }
  void store(float* states, std::int64_t key_head) const {
    each_row(key_head, [&](std::int64_t at, const float* row) { std::copy_n(row, shape_.value_size, states + at); });
  }

 private:
  template <class Body>
  void each_row(std::int64_t key_head, Body body) const {
    for (std::int64_t i = 0; i < heads(); ++i) {
      for (std::int64_t row = 0; row < shape_.key_size; ++row) {
        body(((key_head * heads() + i) * shape_.key_size + row) * shape_.value_size,
             tiles_.state + (i * tiles_.key_row + row) * tiles_.value_row);
      }
    }
  }

  Tensor qkv_;
  Tensor gates_;
  const float* a_log_;
  const float* dt_bias_;
  DeltaShape shape_;
  DeltaTiles tiles_{};
};

float* state_at(const Tensor& states, std::int64_t place) {
  return states.data<float>() + place * states.columns();
}

/// Calls body(first row, end, place of the first chunk's state) on the samples with rows.
template <class Body>
void each_sample(const SequenceLayout& layout, Body body) {
  for (std::int64_t i = 0; i < layout.sequences(); ++i) {
    const std::int64_t first = layout.offsets[static_cast<std::size_t>(i)];
    const std::int64_t end = layout.offsets[static_cast<std::size_t>(i) + 1];
    if (first < end) body(first, end, delta_state_place(first, i));
  }
}

}  // namespace

void delta_rule(Isa isa, ScratchPool& scratch, const DeltaRule& op) {
  assert(op.out.rows() == op.qkv.rows() && op.out.columns() == op.shape.value_columns());
  ScratchPool::Lease lease = scratch.lease();
  const DeltaHeads heads(op, lease, false);
  each_sample(op.layout, [&](std::int64_t begin, std::int64_t end, std::int64_t place) {
    for (std::int64_t key_head = 0; key_head < op.shape.key_heads; ++key_head) {
      heads.clear(heads.tiles().state);
      for (std::int64_t first = begin; first < end; first += delta_chunk) {
        const std::int64_t rows = std::min(delta_chunk, end - first);
        if (op.states.defined()) heads.store(state_at(op.states, place + (first - begin) / delta_chunk), key_head);
        delta_kernels(isa).forward(heads.chunk(key_head, first, rows), heads.tiles(),
                                   out(op.out.row_slice(first, rows)));
      }
    }
  });
}

void delta_rule_backward(Isa isa, ScratchPool& scratch, const DeltaRuleBackward& op) {
  assert(op.states.rows() >= delta_state_place(op.qkv.rows(), op.layout.sequences()));
  ScratchPool::Lease lease = scratch.lease();
  const DeltaHeads heads(op, lease, true);
  each_sample(op.layout, [&](std::int64_t begin, std::int64_t end, std::int64_t place) {
    for (std::int64_t key_head = 0; key_head < op.shape.key_heads; ++key_head) {
      heads.clear(heads.tiles().dstate);
      for (std::int64_t i = (end - begin - 1) / delta_chunk; i >= 0; --i) {
        const std::int64_t first = begin + i * delta_chunk, rows = std::min(delta_chunk, end - first);
        heads.load(state_at(op.states, place + i), key_head);
        delta_kernels(isa).backward({heads.chunk(key_head, first, rows), in(op.dout.row_slice(first, rows)),
                                     out(op.dqkv.row_slice(first, rows)), out(op.dgates.row_slice(first, rows)),
                                     op.da_log.defined() ? op.da_log.data<float>() : nullptr,
                                     op.ddt_bias.defined() ? op.ddt_bias.data<float>() : nullptr},
                                    heads.tiles());
      }
    }
  });
}

void cached_delta(Isa isa, ScratchPool& scratch, const CachedDelta& op) {
  const std::int64_t count = op.qkv.rows();
  assert(op.sequences.empty() || (std::ssize(op.sequences) == count && op.first == 0));
  ScratchPool::Lease lease = scratch.lease();
  const DeltaHeads heads(op, lease, false);
  const auto run = [&](float* state, bool begins, std::int64_t begin, std::int64_t end) {
    for (std::int64_t key_head = 0; key_head < op.shape.key_heads; ++key_head) {
      begins ? heads.clear(heads.tiles().state) : heads.load(state, key_head);
      for (std::int64_t first = begin; first < end; first += delta_chunk) {
        const std::int64_t rows = std::min(delta_chunk, end - first);
        delta_kernels(isa).forward(heads.chunk(key_head, first, rows), heads.tiles(),
                                   out(op.out.row_slice(first, rows)));
      }
      heads.store(state, key_head);
    }
  };
  if (op.sequences.empty()) return run(op.state.data<float>(), op.first == 0, 0, count);
  for (std::int64_t row = 0; row < count; ++row) {
    const CachedSequence& sequence = op.sequences[static_cast<std::size_t>(row)];
    run(state_at(op.state, sequence.begin), sequence.rows == 0, row, row + 1);
  }
}

}  // namespace maestro::cpu
