// SPDX-License-Identifier: Apache-2.0
// Moving rows of heads between the packed activations and f32 tiles. Included by kernels that are compiled once per
// instruction set; D = head size, padded = D rounded up to attention_padding.
#pragma once

#include "runtime/ops/cpu/attention/attention_kernels.hpp"
#include "runtime/ops/cpu/vector_math.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {

[[nodiscard]] inline std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
[[nodiscard]] inline std::int64_t larger(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}
[[nodiscard]] inline std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

/// Returns how many of the keys [first_key, first_key + keys) a query attends to.
[[nodiscard]] inline std::int64_t visible_keys(const AttentionCall& call, std::int64_t query, std::int64_t first_key,
                                               std::int64_t keys) {
  return call.causal ? larger(0, smaller(query + 1 - first_key, keys)) : keys;
}

/// Rows to take at once: all when every query of the tile sees every key, otherwise strips that follow the diagonal.
[[nodiscard]] inline std::int64_t strip_rows(const AttentionCall& call, std::int64_t first_query,
                                             std::int64_t first_key, std::int64_t keys) {
  return visible_keys(call, first_query, first_key, keys) == keys ? attention_query_tile : attention_padding;
}

/// Rows of a head inside a packed activation, of either storage type; `Void` is void where they are written.
template <class Void>
struct HeadRows {
  Void* base = nullptr;
  std::int64_t stride = 0;  ///< elements between rows
  std::int64_t first = 0;   ///< column of the head
  bool bf16 = false;
};

/// Sets to[i] = scale * row[i] for i < size.
template <class Void>
MAESTRO_INLINE void read_row(const HeadRows<Void>& rows, std::int64_t row, std::int64_t size, float scale, float* to) {
  const std::int64_t at = row * rows.stride + rows.first;
  const Vec factor = broadcast(scale);
  std::int64_t i = 0;
  if (rows.bf16) {
    const auto* from = static_cast<const std::uint16_t*>(rows.base) + at;
    for (; i + vector_width <= size; i += vector_width) store(to + i, load_bf16(from + i) * factor);
    for (; i < size; ++i) to[i] = from_bf16(from[i]) * scale;
  } else {
    const auto* from = static_cast<const float*>(rows.base) + at;
    for (; i + vector_width <= size; i += vector_width) store(to + i, load(from + i) * factor);
    for (; i < size; ++i) to[i] = from[i] * scale;
  }
}

/// Sets row[i] = scale * from[i] for i < size, rounded to the storage type.
inline void write_row(const HeadRows<void>& rows, std::int64_t row, std::int64_t size, float scale, const float* from) {
  const std::int64_t at = row * rows.stride + rows.first;
  const Vec factor = broadcast(scale);
  std::int64_t i = 0;
  if (rows.bf16) {
    auto* to = static_cast<std::uint16_t*>(rows.base) + at;
    for (; i + vector_width <= size; i += vector_width) store_bf16(to + i, load(from + i) * factor);
    for (; i < size; ++i) to[i] = to_bf16(from[i] * scale);
  } else {
    auto* to = static_cast<float*>(rows.base) + at;
    for (; i + vector_width <= size; i += vector_width) store(to + i, load(from + i) * factor);
    for (; i < size; ++i) to[i] = from[i] * scale;
  }
}

/// Packs rows to (length, padded) f32; columns at or above D are zero.
inline void pack_rows(const HeadRows<const void>& rows, std::int64_t length, std::int64_t size, float* to) {
  const std::int64_t padded = round_up(size, attention_padding);
  for (std::int64_t r = 0; r < length; ++r, to += padded) {
    read_row(rows, r, size, 1.0F, to);
    for (std::int64_t i = size; i < padded; ++i) to[i] = 0;
  }
}

/// Transposes a square of vector_width rows, `from` (stride apart) to `to` (attention_key_tile apart).
inline void transpose_square(const float* from, std::int64_t stride, float* to) {
  Vec square[vector_width];
  for (int r = 0; r < vector_width; ++r) square[r] = load(from + r * stride);
  transpose(square);
  for (int r = 0; r < vector_width; ++r) store(to + r * attention_key_tile, square[r]);
}

/// Transposes packed rows (length, padded) to tiles [length / key_tile][padded][key_tile]; keys at or above length are
/// zero.
inline void pack_transposed(float* packed, std::int64_t length, std::int64_t size, float* to) {
  const std::int64_t padded = round_up(size, attention_padding);
  const std::int64_t end = round_up(length, attention_padding);
  for (std::int64_t i = length * padded; i < end * padded; ++i) packed[i] = 0;
  for (std::int64_t tile = 0; tile < length; tile += attention_key_tile, to += padded * attention_key_tile) {
    const std::int64_t keys = smaller(attention_key_tile, end - tile);
    for (std::int64_t d = 0; d < padded; d += vector_width) {
      for (std::int64_t k = 0; k < keys; k += vector_width) {
        transpose_square(packed + (tile + k) * padded + d, padded, to + d * attention_key_tile + k);
      }
    }
  }
}

template <class Void>
[[nodiscard]] MAESTRO_INLINE HeadRows<Void> query_rows(const AttentionCall& call, Void* base, std::int64_t head) {
  return {base, (call.heads + 2 * call.kv_heads) * call.head_size, head * call.head_size, call.bf16};
}
template <class Void>
[[nodiscard]] MAESTRO_INLINE HeadRows<Void> key_rows(const AttentionCall& call, Void* base) {
  return query_rows(call, base, call.heads + call.kv_head);
}
template <class Void>
[[nodiscard]] MAESTRO_INLINE HeadRows<Void> value_rows(const AttentionCall& call, Void* base) {
  return query_rows(call, base, call.heads + call.kv_heads + call.kv_head);
}
template <class Void>
[[nodiscard]] MAESTRO_INLINE HeadRows<Void> out_rows(const AttentionCall& call, Void* base, std::int64_t head) {
  return {base, call.heads * call.head_size, head * call.head_size, call.bf16};
}

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
