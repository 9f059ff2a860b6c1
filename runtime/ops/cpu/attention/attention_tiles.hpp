// SPDX-License-Identifier: Apache-2.0
// Copies of head rows between the packed activations and tiles. Included by kernels that are compiled once per
// instruction set. D = head size, padded = D rounded up to attention_padding. Operands of products are words
// (attention_products.hpp) in one of two forms: rows have the words of a row next to each other, for products over D;
// depth rows have a word per column, each with word_elements rows, for products over rows. Without bf16 dot products
// both are rows of f32.
#pragma once

#include "runtime/ops/cpu/attention/attention_kernels.hpp"
#include "runtime/ops/cpu/attention/attention_products.hpp"
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

/// Returns the distance between rows of words in scratch: a multiple of vector_width, so that squares are transposed.
[[nodiscard]] inline std::int64_t row_words(std::int64_t head_size) {
  return round_up(words_of(head_size), attention_padding);
}

/// Columns of a key tile; none if end <= first.
struct KeyRange {
  std::int64_t first = 0;
  std::int64_t end = 0;
};

/// Returns the end of the keys that a query sees.
[[nodiscard]] inline std::int64_t end_of_keys(const AttentionCall& call, std::int64_t query) {
  if (!call.causal) return call.length;
  return call.ends == nullptr ? query + 1 : call.ends[query];
}

/// Returns how many of the keys from `first_key` on a query's window hides.
[[nodiscard]] inline std::int64_t keys_before_window(const AttentionCall& call, std::int64_t query,
                                                     std::int64_t first_key) {
  return call.window > 0 ? larger(0, query + 1 - call.window - first_key) : 0;
}

/// Returns which of the keys [first_key, first_key + keys) a query attends to.
[[nodiscard]] inline KeyRange seen_keys(const AttentionCall& call, std::int64_t query, std::int64_t first_key,
                                        std::int64_t keys) {
  return {keys_before_window(call, query, first_key), larger(0, smaller(end_of_keys(call, query) - first_key, keys))};
}

/// Returns the columns that any of the queries [query, query + rows) sees, widened to begin at a multiple of
/// attention_padding.
[[nodiscard]] inline KeyRange strip_keys(const AttentionCall& call, std::int64_t query, std::int64_t rows,
                                         std::int64_t first_key, std::int64_t keys) {
  return {seen_keys(call, query, first_key, keys).first / attention_padding * attention_padding,
          seen_keys(call, query + rows - 1, first_key, keys).end};
}

/// Returns the first key of the first tile that any query from `query` on sees.
[[nodiscard]] inline std::int64_t first_key_tile(const AttentionCall& call, std::int64_t query) {
  return keys_before_window(call, query, 0) / attention_key_tile * attention_key_tile;
}

/// Returns a mask of the lanes whose columns, from `at` on, are in `range`.
MAESTRO_INLINE IVec lanes_in(std::int64_t at, KeyRange range) {
  const IVec column = lane_numbers() + static_cast<std::int32_t>(at);
  return (column >= static_cast<std::int32_t>(range.first)) & (column < static_cast<std::int32_t>(range.end));
}

/// Returns the rows to process at once: all if every query of the tile sees every key, otherwise strips that follow the
/// edges.
[[nodiscard]] inline std::int64_t strip_rows(const AttentionCall& call, std::int64_t first_query,
                                             std::int64_t first_key, std::int64_t keys) {
  const bool all = seen_keys(call, first_query, first_key, keys).end == keys &&
                   keys_before_window(call, first_query + attention_query_tile - 1, first_key) == 0;
  return all ? attention_query_tile : attention_padding;
}

#if defined(__AVX512BF16__)
/// Scores in tiles are powers of two: log2(e) times scores of the formulas.
inline constexpr float score_unit = 1.44269504088896341F;

/// Returns 2^x with a relative error below 2e-7, for x up to 127: the minimax polynomial of x - floor(x).
MAESTRO_INLINE Vec exponential(Vec x) {
  const Vec r = _mm512_maskz_reduce_ps(0xffff, x, _MM_FROUND_TO_NEG_INF);
  Vec p = r * 0.0018775767F + 0.0089893406F;
  p = p * r + 0.055826318F;
  p = p * r + 0.24015361F;
  p = p * r + 0.69315308F;
  p = p * r + 0.99999994F;
  return _mm512_maskz_scalef_ps(0xffff, p, x);
}
#else
inline constexpr float score_unit = 1;

MAESTRO_INLINE Vec exponential(Vec x) {
  return exp(x);
}
#endif

/// Returns the scores of the rows [r, r + rows), before a soft cap: their product with the columns of a key tile.
[[nodiscard]] inline TileProduct score_product(const AttentionCall& call, std::int64_t r, std::int64_t rows,
                                               std::int64_t first_key, KeyRange columns) {
  const std::int64_t words = row_words(call.head_size);
  return {.a = call.tiles.query + r * words,
          .a_row = words,
          .b = call.tiles.keys_tiles + first_key * words + columns.first,
          .b_step = attention_key_tile,
          .c = call.tiles.scores + r * attention_key_tile + columns.first,
          .c_row = attention_key_tile,
          .rows = rows,
          .vectors = (columns.end - columns.first + vector_width - 1) / vector_width,
          .depth = words_of(call.head_size),
          .factor = call.softcap > 0 ? call.scale : call.scale * score_unit};
}

/// Caps `rows` rows of scores, attention_key_tile apart, in full vectors.
inline void cap_scores(const AttentionCall& call, std::int64_t rows, KeyRange columns, float* scores) {
  const Vec cap = broadcast(call.softcap);
  for (std::int64_t r = 0; r < rows; ++r, scores += attention_key_tile) {
    for (std::int64_t at = columns.first; at < columns.end; at += vector_width) {
      store(scores + at, Softcap::value(load(scores + at), cap) * score_unit);
    }
  }
}

/// Returns whether products of a key tile add to the result tile instead of starting it. With a window, rows differ in
/// the first tile that they see, so the result is cleared first.
[[nodiscard]] inline bool adds_to_result(const AttentionCall& call, std::int64_t first_key) {
  return first_key > 0 || call.window > 0;
}
/// Sets a query tile of results to zero if a row may not see the first key tile.
inline void clear_windowed(const AttentionCall& call, std::int64_t padded) {
  if (call.window == 0) return;
  for (std::int64_t i = 0; i < attention_query_tile * padded; ++i) call.tiles.result[i] = 0;
}

/// Rows of a head inside a packed activation of either storage type; `Void` is void if they are written.
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

#if defined(__AVX512BF16__)
/// Returns up to 16 elements of a bf16 row from column `at` on; zero at or above D.
template <class Void>
MAESTRO_INLINE HalfRow read_bf16(const HeadRows<Void>& rows, std::int64_t row, std::int64_t size, std::int64_t at) {
  return first_elements(static_cast<const std::uint16_t*>(rows.base) + row * rows.stride + rows.first + at, size - at);
}
#endif

/// Reads a row as words: in f32, scaled, or as bf16, not scaled. Columns at or above D are zero.
template <class Void>
MAESTRO_INLINE void read_words(const HeadRows<Void>& rows, std::int64_t row, std::int64_t size, float scale,
                               float* to) {
#if defined(__AVX512BF16__)
  (void)scale;
  for (std::int64_t at = 0; at < row_words(size) * word_elements; at += attention_padding) {
    const HalfRow part = read_bf16(rows, row, size, at);
    __builtin_memcpy(to + at / word_elements, &part, sizeof part);
  }
#else
  read_row(rows, row, size, scale, to);
  for (std::int64_t i = size; i < row_words(size); ++i) to[i] = 0;
#endif
}

/// Packs rows to (length, row_words).
inline void pack_rows(const HeadRows<const void>& rows, std::int64_t length, std::int64_t size, float* to) {
  for (std::int64_t r = 0; r < length; ++r, to += row_words(size)) read_words(rows, r, size, 1.0F, to);
}

/// Packs the rows [first, first + count) to depth rows (words_of(count), padded).
inline void pack_depth(const HeadRows<const void>& rows, std::int64_t first, std::int64_t count, std::int64_t size,
                       float* to) {
  const std::int64_t padded = round_up(size, attention_padding);
  for (std::int64_t r = 0; r < count; r += word_elements, to += padded) {
#if defined(__AVX512BF16__)
    const std::int64_t odd_size = r + 1 < count ? size : 0;
    for (std::int64_t at = 0; at < padded; at += attention_padding) {
      store(to + at, pairs_of(read_bf16(rows, first + r, size, at), read_bf16(rows, first + r + 1, odd_size, at)));
    }
#else
    read_words(rows, first + r, size, 1.0F, to);
#endif
  }
}

/// Writes a vector of a row from column `at` on as words; the row's f32 from `at` on may have been there.
MAESTRO_INLINE void store_words(float* row, std::int64_t at, Vec value) {
#if defined(__AVX512BF16__)
  const auto half = _mm512_cvtneps_pbh(value);
  __builtin_memcpy(row + at / word_elements, &half, sizeof half);
#else
  store(row + at, value);
#endif
}

/// Writes a vector of word_elements rows to a depth row.
MAESTRO_INLINE void store_depth(float* to, const Vec* rows) {
#if defined(__AVX512BF16__)
  store(to, pairs_of(rows[0], rows[1]));
#else
  store(to, rows[0]);
#endif
}

/// Transposes a square of vector_width rows, `from` (stride apart) to `to` (attention_key_tile apart).
inline void transpose_square(const float* from, std::int64_t stride, float* to) {
  Vec square[vector_width];
  for (int r = 0; r < vector_width; ++r) square[r] = load(from + r * stride);
  transpose(square);
  for (int r = 0; r < vector_width; ++r) store(to + r * attention_key_tile, square[r]);
}

/// Transposes packed rows to tiles [length / key_tile][row_words][key_tile]; keys at or above length are zero.
inline void pack_transposed(float* packed, std::int64_t length, std::int64_t size, float* to) {
  const std::int64_t words = row_words(size);
  const std::int64_t end = round_up(length, attention_padding);
  for (std::int64_t i = length * words; i < end * words; ++i) packed[i] = 0;
  for (std::int64_t tile = 0; tile < length; tile += attention_key_tile, to += words * attention_key_tile) {
    const std::int64_t keys = smaller(attention_key_tile, end - tile);
    for (std::int64_t d = 0; d < words; d += vector_width) {
      for (std::int64_t k = 0; k < keys; k += vector_width) {
        transpose_square(packed + (tile + k) * words + d, words, to + d * attention_key_tile + k);
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
