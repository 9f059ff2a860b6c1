// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/attention/cached_attention.hpp"

#include <bit>

#include "runtime/ops/cuda/attention/cached_rows.cuh"
#include "runtime/ops/cuda/attention/flash_attention.hpp"
#include "runtime/ops/cuda/launch_rows.cuh"

namespace maestro::cuda {

namespace {

template <class T>
void run_cached(const Launch& at, const CachedAttention& op) {
  const AttentionShape& shape = op.shape;
  const std::int64_t rows = op.qkv.rows();
  const std::int64_t columns = shape.kv_heads * shape.head_size;
  const CachedSequence* const sequences = op.sequences.empty() ? nullptr : op.sequences.data();
  launch_rows(at, "cache_rows", rows, 2 * columns / flat_width,
              CachedRows<T>{op.qkv.data<T>() + shape.out_columns(), op.keys.data<T>(), op.values.data<T>(),
                            shape.qkv_columns(), columns, op.first, sequences});
  const auto packs = static_cast<unsigned>(shape.head_size / flat_width);
  launch({"cached_attention", dim3(static_cast<unsigned>(rows), static_cast<unsigned>(shape.heads)), cached_threads, 0,
          at.stream},
         cached_attention_kernel<T>,
         CachedCall<T>{.qkv = op.qkv.data<T>(),
                       .keys = op.keys.data<T>(),
                       .values = op.values.data<T>(),
                       .out = op.out.data<T>(),
                       .first = op.first,
                       .window = shape.window,
                       .ends = op.ends.empty() ? nullptr : op.ends.data(),
                       .sequences = sequences,
                       .sinks = data_of<float>(op.sinks),
                       .heads = static_cast<int>(shape.heads),
                       .kv_heads = static_cast<int>(shape.kv_heads),
                       .head_size = static_cast<int>(shape.head_size),
                       .lanes = static_cast<int>(std::bit_ceil(packs)),
                       .scale = static_cast<float>(shape.score_scale()),
                       .softcap = static_cast<float>(shape.softcap)});
}

}  // namespace

void cached_attention(const Launch& at, const CachedAttention& op) {
  check_flash(op.shape, {op.qkv, op.keys, op.values});
  assert(op.shape.causal && op.qkv.columns() == op.shape.qkv_columns());
  if (op.qkv.rows() == 0) return;
  op.qkv.dtype() == DType::bf16 ? run_cached<bfloat16>(at, op) : run_cached<float>(at, op);
}

}  // namespace maestro::cuda
