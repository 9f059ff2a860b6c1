// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/attention/attention.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

#include "runtime/ops/cpu/attention/attention_kernels.hpp"

namespace maestro::cpu {

namespace {

std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

std::int64_t longest(const SequenceLayout& layout) {
  std::int64_t length = 0;
  for (std::size_t i = 0; i + 1 < layout.offsets.size(); ++i) {
    length = std::max<std::int64_t>(length, layout.offsets[i + 1] - layout.offsets[i]);
  }
  return length;
}

/// `words`: operands are words of two bf16.
AttentionScratch take_tiles(ScratchPool::Lease& lease, std::int64_t length, std::int64_t head_size, bool words,
                            bool backward) {
  const std::int64_t padded = round_up(head_size, attention_padding);
  const std::int64_t operand = words ? round_up((head_size + 1) / 2, attention_padding) : padded;
  const std::int64_t tokens = round_up(length, attention_key_tile);
  const std::int64_t square = attention_query_tile * attention_key_tile;
  AttentionScratch tiles;
  tiles.keys = lease.floats(tokens * operand);
  tiles.keys_tiles = lease.floats(tokens * operand);
  tiles.query = lease.floats(attention_query_tile * operand);
  tiles.result = lease.floats(attention_query_tile * padded);
  tiles.scores = lease.floats(square);
  tiles.row_max = lease.floats(attention_query_tile);
  tiles.row_sum = lease.floats(attention_query_tile * attention_padding);
  if (!backward) {
    tiles.values = lease.floats(tokens * operand);
    return tiles;
  }
  tiles.values_tiles = lease.floats(tokens * operand);
  tiles.dkeys = lease.floats(tokens * padded);
  tiles.dvalues = lease.floats(tokens * padded);
  tiles.dout = lease.floats(attention_query_tile * operand);
  tiles.dscores = lease.floats(square);
  tiles.query_depth = words ? lease.floats(attention_query_tile / 2 * padded) : tiles.query;
  tiles.dout_depth = words ? lease.floats(attention_query_tile / 2 * padded) : tiles.dout;
  tiles.dscore_rows = words ? lease.floats(square) : tiles.dscores;
  return tiles;
}

AttentionCall base_call(const AttentionTensors& tensors, const AttentionShape& shape) {
  assert(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
  assert(shape.window == 0 || shape.causal);
  assert(tensors.qkv.columns() == shape.qkv_columns() && tensors.out.columns() == shape.out_columns());
  assert(tensors.out.rows() == tensors.qkv.rows() && tensors.lse.elements() == tensors.qkv.rows() * shape.heads);
  assert(tensors.out.dtype() == tensors.qkv.dtype() && tensors.lse.dtype() == DType::f32);
  AttentionCall call;
  call.heads = shape.heads;
  call.kv_heads = shape.kv_heads;
  call.head_size = shape.head_size;
  call.causal = shape.causal;
  call.window = shape.window;
  // Not score_scale(), which rounds once and may differ in the last place: jobs repeat bitwise across versions.
  const float default_scale = 1.0F / std::sqrt(static_cast<float>(shape.head_size));
  call.scale = shape.scale > 0 ? static_cast<float>(shape.scale) : default_scale;
  call.softcap = static_cast<float>(shape.softcap);
  call.bf16 = tensors.qkv.dtype() == DType::bf16;
  return call;
}

/// Returns the address of the first element of `row`, or null for a tensor that this pass does not use.
void* row_of(const Tensor& tensor, std::int64_t row) {
  if (!tensor.defined()) return nullptr;
  return tensor.raw() + static_cast<std::size_t>(row * tensor.columns()) * size_of(tensor.dtype());
}

/// Returns the first rows of the query tiles of kernels, counted from the sequence's first row.
std::vector<std::int64_t> query_tiles(const QueryTiles& tiles, std::int64_t length) {
  static_assert(QueryTiles::unit == attention_query_tile);
  std::vector<std::int64_t> found;
  for (std::int64_t round = 0; tiles.first_row(round) < length; ++round) {
    const std::int64_t first = tiles.first_row(round), end = std::min(first + tiles.rows, length);
    for (std::int64_t row = first; row < end; row += attention_query_tile) found.push_back(row);
  }
  return found;
}

/// Runs `kernel` for every kv head of every sequence, in a fixed order.
void for_heads(void (*kernel)(const AttentionCall&), AttentionCall call, const AttentionTensors& tensors,
               const AttentionGradients& gradients, const PackedQueries& packed) {
  const SequenceLayout& layout = packed.layout;
  assert(layout.rows() == tensors.qkv.rows());
  assert(layout.ends.empty() || (call.causal && std::ssize(layout.ends) == layout.rows()));
  for (std::size_t i = 0; i + 1 < layout.offsets.size(); ++i) {
    const std::int64_t first = layout.offsets[i];
    call.length = layout.offsets[i + 1] - first;
    if (call.length == 0) continue;
    const std::vector<std::int64_t> tiles =
        query_tiles(QueryTiles(packed.queries, static_cast<std::int64_t>(i), call.length), call.length);
    call.query_tiles = tiles.data();
    call.query_tile_count = std::ssize(tiles);
    call.qkv = row_of(tensors.qkv, first);
    call.out = row_of(tensors.out, first);
    call.lse = tensors.lse.data<float>() + first * call.heads;
    call.ends = layout.ends.empty() ? nullptr : layout.ends.data() + first;
    call.dout = row_of(gradients.dout, first);
    call.dqkv = row_of(gradients.dqkv, first);
    for (call.kv_head = 0; call.kv_head < call.kv_heads; ++call.kv_head) kernel(call);
  }
}

}  // namespace

AttentionEngine::AttentionEngine(Isa isa, Bf16Products bf16, ScratchPool& scratch)
    : isa_(isa),
      bf16_(bf16),
      kernels_(&attention_kernels(isa)),
      bf16_kernels_(bf16 == Bf16Products::native ? &avx512_bf16::attention_kernels : kernels_),
      scratch_(&scratch) {}

const AttentionKernels& AttentionEngine::kernels_for(const Tensor& qkv) const {
  return qkv.dtype() == DType::bf16 ? *bf16_kernels_ : *kernels_;
}

void AttentionEngine::forward(const AttentionTensors& tensors, const AttentionShape& shape,
                              const PackedQueries& packed) const {
  AttentionCall call = base_call(tensors, shape);
  ScratchPool::Lease lease = scratch_->lease();
  const AttentionKernels& kernels = kernels_for(tensors.qkv);
  call.tiles = take_tiles(lease, longest(packed.layout), shape.head_size, &kernels != kernels_, false);
  for_heads(kernels.forward, call, tensors, {}, packed);
}

void AttentionEngine::backward(const AttentionTensors& tensors, const AttentionGradients& gradients,
                               const AttentionShape& shape, const PackedQueries& packed) const {
  assert(gradients.dout.dtype() == tensors.qkv.dtype() && gradients.dqkv.dtype() == tensors.qkv.dtype());
  assert(gradients.dqkv.shape() == tensors.qkv.shape() && gradients.dout.shape() == tensors.out.shape());
  AttentionCall call = base_call(tensors, shape);
  ScratchPool::Lease lease = scratch_->lease();
  const AttentionKernels& kernels = kernels_for(tensors.qkv);
  call.tiles = take_tiles(lease, longest(packed.layout), shape.head_size, &kernels != kernels_, true);
  for_heads(kernels.backward, call, tensors, gradients, packed);
}

}  // namespace maestro::cpu
