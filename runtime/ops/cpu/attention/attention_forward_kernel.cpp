// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/attention/attention_tiles.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

constexpr float lowest = -3.0e38F;

/// Queries [q0 + r, q0 + r + rows) against a tile of keys; at most vector_width rows.
struct RowGroup {
  std::int64_t q0 = 0;
  std::int64_t r = 0;
  std::int64_t rows = 0;
  std::int64_t k0 = 0;
  std::int64_t keys = 0;
  KeyRange columns;  ///< columns of computed scores, including masked scores
};

/// Which keys a group's rows see in a key tile: all 64, some from the first one on, or some in a window.
enum class Sight : std::uint8_t { all, first_keys, window };

/// Returns the columns of the group, which are known to the compiler if its rows see all.
template <Sight Seen>
MAESTRO_INLINE KeyRange columns_of(const RowGroup& group) {
  if constexpr (Seen == Sight::all) return {0, attention_key_tile};
  return {Seen == Sight::window ? group.columns.first : 0, group.columns.end};
}

/// Returns the scores. Scores of keys outside `seen` are replaced so that their exponential is exactly zero.
template <Sight Seen>
MAESTRO_INLINE Vec masked_scores(const float* scores, std::int64_t at, KeyRange seen) {
  if constexpr (Seen == Sight::all) return load(scores + at);
  if (at + vector_width <= seen.end && (Seen != Sight::window || at >= seen.first)) return load(scores + at);
  return select(lanes_in(at, seen), load(scores + at), broadcast(lowest));
}

/// Raises row_max to the maxima including this tile, and writes the factors for earlier sums to `factors`. Finds the
/// maxima of all rows together: transposing a square costs less than a reduction per row.
template <Sight Seen>
inline void update_maxima(const AttentionCall& call, const RowGroup& group, float* factors) {
  float* row_max = call.tiles.row_max + group.r;
  const KeyRange columns = columns_of<Seen>(group);
  Vec tops[vector_width];
  for (Vec& top : tops) top = broadcast(lowest);
  for (std::int64_t i = 0; i < group.rows; ++i) {
    const float* scores = call.tiles.scores + (group.r + i) * attention_key_tile;
    const KeyRange seen = seen_keys(call, group.q0 + group.r + i, group.k0, group.keys);
    for (std::int64_t at = columns.first; at < columns.end; at += vector_width) {
      tops[i] = maximum(tops[i], masked_scores<Seen>(scores, at, seen));
    }
  }
  transpose(tops);
  const Vec before = load(row_max);
  Vec max = before;
  for (const Vec& top : tops) max = maximum(max, top);
  store(row_max, max);
  store(factors, exponential(before - max));
}

/// Turns a row of scores into words of exp(score - max), and adds the exponentials to the row's sum after multiplying
/// the sum by `factor`.
template <Sight Seen>
inline void exponentiate_row(const AttentionCall& call, const RowGroup& group, std::int64_t row, float factor) {
  float* scores = call.tiles.scores + row * attention_key_tile;
  float* sum = call.tiles.row_sum + row * attention_padding;
  const KeyRange seen = seen_keys(call, group.q0 + row, group.k0, group.keys);
  // A row that has seen no key has the lowest maximum, which masked scores would equal.
  const bool blind = Seen == Sight::window && seen.first >= seen.end;
  const Vec max = broadcast(blind ? -lowest : call.tiles.row_max[row]);
  const KeyRange columns = columns_of<Seen>(group);
  Vec total = load(sum) * broadcast(factor);
  for (std::int64_t at = columns.first; at < columns.end; at += vector_width) {
    const Vec p = exponential(masked_scores<Seen>(scores, at, seen) - max);
    store_words(scores, at, p);
    total += p;
  }
  store(sum, total);
}

inline void scale_row(float* row, std::int64_t size, float factor) {
  for (std::int64_t i = 0; i < size; i += vector_width) store(row + i, load(row + i) * broadcast(factor));
}

/// Computes the online softmax for a group of rows: turns scores into exponentials, and rescales the sums and results
/// to the new maxima.
template <Sight Seen>
inline void softmax_group(const AttentionCall& call, const RowGroup& group) {
  const std::int64_t padded = round_up(call.head_size, attention_padding);
  float factors[vector_width];
  update_maxima<Seen>(call, group, factors);
  for (std::int64_t i = 0; i < group.rows; ++i) {
    const std::int64_t row = group.r + i;
    exponentiate_row<Seen>(call, group, row, factors[i]);
    if (factors[i] != 1.0F && adds_to_result(call, group.k0))
      scale_row(call.tiles.result + row * padded, padded, factors[i]);
  }
}

/// Adds a tile of keys to the results of the queries [q0, q0 + rows).
void add_key_tile(const AttentionCall& call, std::int64_t q0, std::int64_t rows, std::int64_t k0) {
  const AttentionScratch& t = call.tiles;
  const std::int64_t padded = round_up(call.head_size, attention_padding);
  const std::int64_t keys = smaller(attention_key_tile, call.length - k0);
  const std::int64_t strip = strip_rows(call, q0, k0, keys);
  for (std::int64_t r = 0; r < rows; r += strip) {
    const std::int64_t height = smaller(strip, rows - r);
    const KeyRange columns = strip_keys(call, q0 + r, height, k0, keys);
    if (columns.first >= columns.end) continue;
    float* scores = t.scores + r * attention_key_tile;
    multiply(score_product(call, r, height, k0, columns));
    if (call.softcap > 0) cap_scores(call, height, columns, scores);
    for (std::int64_t i = 0; i < height; i += vector_width) {
      const RowGroup group{q0, r + i, smaller(vector_width, height - i), k0, keys, columns};
      if (strip == attention_query_tile && keys == attention_key_tile) {
        softmax_group<Sight::all>(call, group);
      } else {
        call.window > 0 ? softmax_group<Sight::window>(call, group) : softmax_group<Sight::first_keys>(call, group);
      }
    }
    multiply({.a = scores + columns.first / word_elements,
              .a_row = attention_key_tile,
              .b = t.values + (k0 + columns.first) / word_elements * padded,
              .b_step = padded,
              .c = t.result + r * padded,
              .c_row = padded,
              .rows = height,
              .vectors = padded / vector_width,
              .depth = words_of(columns.end - columns.first),
              .accumulate = adds_to_result(call, k0)});
  }
}

void attend_query_tile(const AttentionCall& call, std::int64_t head, std::int64_t q0) {
  const AttentionScratch& t = call.tiles;
  const std::int64_t padded = round_up(call.head_size, attention_padding);
  const std::int64_t rows = smaller(attention_query_tile, call.length - q0);
  const HeadRows queries = query_rows(call, call.qkv, head);
  for (std::int64_t r = 0; r < attention_query_tile; ++r) t.row_max[r] = lowest;
  for (std::int64_t r = 0; r < rows; ++r) {
    read_words(queries, q0 + r, call.head_size, call.scale, t.query + r * row_words(call.head_size));
    for (std::int64_t i = 0; i < attention_padding; ++i) t.row_sum[r * attention_padding + i] = 0;
  }
  const std::int64_t end = end_of_keys(call, q0 + rows - 1);
  clear_windowed(call, padded);
  for (std::int64_t k0 = first_key_tile(call, q0); k0 < end; k0 += attention_key_tile) {
    add_key_tile(call, q0, rows, k0);
  }
  const HeadRows outs = out_rows(call, call.out, head);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float sum = reduce_sum(load(t.row_sum + r * attention_padding));
    write_row(outs, q0 + r, call.head_size, 1.0F / sum, t.result + r * padded);
    call.lse[(q0 + r) * call.heads + head] = t.row_max[r] * (1 / score_unit) + __builtin_logf(sum);
  }
}

}  // namespace

void attention_backward(const AttentionCall& call);  // attention_backward_kernel.cpp

void attention_forward(const AttentionCall& call) {
  if (call.query_tile_count == 0) return;
  const AttentionScratch& t = call.tiles;
  pack_rows(key_rows(call, call.qkv), call.length, call.head_size, t.keys);
  pack_transposed(t.keys, call.length, call.head_size, t.keys_tiles);
  pack_depth(value_rows(call, call.qkv), 0, call.length, call.head_size, t.values);
  const std::int64_t shared_by = call.heads / call.kv_heads;
  for (std::int64_t i = 0; i < shared_by; ++i) {
    for (std::int64_t tile = 0; tile < call.query_tile_count; ++tile) {
      attend_query_tile(call, call.kv_head * shared_by + i, call.query_tiles[tile]);
    }
  }
}

const AttentionKernels attention_kernels = {attention_forward, attention_backward};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
