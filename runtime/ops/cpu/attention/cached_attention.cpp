// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/attention/cached_attention.hpp"

#include <cassert>
#include <cstring>

#include "runtime/ops/cpu/attention/cached_attention_kernel.hpp"

namespace maestro::cpu {

namespace {

/// Copies the columns from `column` on in every row of qkv to the cache's rows from `first` on.
void append(const Tensor& qkv, std::int64_t column, const Tensor& cache, std::int64_t first) {
  const auto size = static_cast<std::int64_t>(size_of(qkv.dtype()));
  const auto bytes = static_cast<std::size_t>(cache.columns() * size);
  for (std::int64_t row = 0; row < qkv.rows(); ++row) {
    std::memcpy(cache.raw() + (first + row) * cache.columns() * size, qkv.raw() + (row * qkv.columns() + column) * size,
                bytes);
  }
}

AttentionScratch take_tiles(ScratchPool::Lease& lease, std::int64_t head_size) {
  const std::int64_t padded = (head_size + attention_padding - 1) / attention_padding * attention_padding;
  AttentionScratch tiles;
  tiles.keys = lease.floats(attention_key_tile * padded);
  tiles.values = lease.floats(attention_key_tile * padded);
  tiles.keys_tiles = lease.floats(attention_key_tile * padded);
  tiles.query = lease.floats(attention_query_tile * padded);
  tiles.result = lease.floats(attention_query_tile * padded);
  tiles.scores = lease.floats(attention_query_tile * attention_key_tile);
  tiles.row_max = lease.floats(attention_query_tile);
  tiles.row_sum = lease.floats(attention_query_tile * attention_padding);
  return tiles;
}

}  // namespace

namespace {

/// Returns the call for row `row` of a call with `sequences`.
CachedAttention of_sequence(const CachedAttention& op, std::int64_t row) {
  const CachedSequence at = op.sequences[static_cast<std::size_t>(row)];
  assert(at.begin >= 0 && at.rows >= 0 && at.begin + at.rows < op.keys.rows());
  const std::int64_t rows = std::int64_t{at.rows} + 1;
  return {.qkv = op.qkv.row_slice(row, 1),
          .shape = op.shape,
          .keys = op.keys.row_slice(at.begin, rows),
          .values = op.values.row_slice(at.begin, rows),
          .first = at.rows,
          .out = op.out.row_slice(row, 1),
          .sinks = op.sinks};
}

}  // namespace

void cached_attention(Isa isa, Bf16Products bf16_products, ScratchPool& scratch, const CachedAttention& op) {
  if (!op.sequences.empty()) {
    assert(std::ssize(op.sequences) == op.qkv.rows() && op.first == 0 && op.ends.empty());
    for (std::int64_t row = 0; row < op.qkv.rows(); ++row)
      cached_attention(isa, bf16_products, scratch, of_sequence(op, row));
    return;
  }
  const AttentionShape& shape = op.shape;
  const std::int64_t size = shape.head_size;
  const DType act = op.qkv.dtype();
  assert(shape.causal && op.qkv.columns() == shape.qkv_columns() && op.out.columns() == shape.out_columns());
  assert(op.keys.columns() == shape.kv_heads * size && op.values.columns() == op.keys.columns());
  assert(op.keys.dtype() == act && op.values.dtype() == act && op.out.dtype() == act);
  assert(op.first >= 0 && op.first + op.qkv.rows() <= op.keys.rows() && op.keys.rows() == op.values.rows());
  assert(op.ends.empty() || (std::ssize(op.ends) == op.qkv.rows() && op.ends.back() <= op.first + op.qkv.rows()));
  append(op.qkv, shape.heads * size, op.keys, op.first);
  append(op.qkv, (shape.heads + shape.kv_heads) * size, op.values, op.first);
  ScratchPool::Lease lease = scratch.lease();
  CachedAttentionCall call{.query_stride = op.qkv.columns(),
                           .key_stride = op.keys.columns(),
                           .out_stride = op.out.columns(),
                           .rows = op.qkv.rows(),
                           .first = op.first,
                           .shared_by = shape.heads / shape.kv_heads,
                           .head_size = size,
                           .window = shape.window,
                           .ends = op.ends.empty() ? nullptr : op.ends.data(),
                           .scale = static_cast<float>(shape.score_scale()),
                           .softcap = static_cast<float>(shape.softcap),
                           .tiles = take_tiles(lease, size)};
  const bool bf16 = act == DType::bf16;
  const bool dots = bf16 && bf16_products == Bf16Products::native;
  const auto& kernels = dots ? avx512_bf16::cached_attention_kernels : cached_attention_kernels(isa);
  const auto column = [&](const Tensor& tensor, std::int64_t head) {
    return tensor.raw() + head * size * static_cast<std::int64_t>(size_of(act));
  };
  for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
    call.queries = {column(op.qkv, head * call.shared_by), bf16};
    call.keys = {column(op.keys, head), bf16};
    call.values = {column(op.values, head), bf16};
    call.out = {column(op.out, head * call.shared_by), bf16};
    call.sinks = op.sinks.defined() ? op.sinks.data<float>() + head * call.shared_by : nullptr;
    kernels.forward(call);
  }
}

}  // namespace maestro::cpu
