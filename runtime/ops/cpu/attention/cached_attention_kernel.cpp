// SPDX-License-Identifier: Apache-2.0
// Query tiles hold a row's heads next to each other, so that heads that share keys read them once. A single row costs
// about as much as reading the keys and values; many rows cost as much as the two products.
#include "runtime/ops/cpu/attention/cached_attention_kernel.hpp"

#include "runtime/ops/cpu/attention/attention_products.hpp"
#include "runtime/ops/cpu/attention/attention_tiles.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

constexpr float lowest = -3.0e38F;

/// Queries [q0, q0 + count) of the call.
struct QueryTile {
  std::int64_t q0 = 0;
  std::int64_t count = 0;
};

/// Keys [first, end) that a query sees.
struct Visible {
  std::int64_t first = 0;
  std::int64_t end = 0;
};

inline std::int64_t padded_size(const CachedAttentionCall& call) {
  return round_up(call.head_size, attention_padding);
}

inline Visible visible_to(const CachedAttentionCall& call, std::int64_t query) {
  const std::int64_t row = query / call.shared_by;
  const std::int64_t behind = call.first + row + 1;
  return {call.window > 0 ? larger(0, behind - call.window) : 0, call.ends == nullptr ? behind : call.ends[row]};
}

/// Returns the rows from `k0` on of the keys or values.
inline HeadRows<const void> rows_from(const CachedAttentionCall& call, const In& from, std::int64_t k0) {
  return {from.data, call.key_stride, k0 * call.key_stride, from.bf16};
}

/// Depth rows of values; refers to the input if it already has that form.
struct ValueRows {
  const float* data;
  std::int64_t stride;
};
inline ValueRows value_rows(const CachedAttentionCall& call, std::int64_t k0, std::int64_t keys) {
  if (!call.values.bf16 && padded_size(call) == call.head_size) {
    return {static_cast<const float*>(call.values.data) + k0 * call.key_stride, call.key_stride};
  }
  pack_depth(rows_from(call, call.values, k0), 0, keys, call.head_size, call.tiles.values);
  return {call.tiles.values, padded_size(call)};
}

MAESTRO_INLINE Vec capped(Vec score, float softcap) {
  return softcap > 0 ? Softcap::value(score, broadcast(softcap)) * score_unit : score;
}

/// Returns the scores of the keys from `key` on. Scores of keys outside `seen` are replaced so that their exponential
/// is exactly zero.
MAESTRO_INLINE Vec masked_scores(const CachedAttentionCall& call, const float* scores, std::int64_t key,
                                 const Visible& seen) {
  const Vec value = capped(load(scores), call.softcap);
  if (key >= seen.first && key + vector_width <= seen.end) return value;
  const IVec numbers = lane_numbers();
  const auto before = static_cast<std::int32_t>(seen.first - key);
  const auto end = static_cast<std::int32_t>(seen.end - key);
  return select(numbers >= before, select(numbers < end, value, broadcast(lowest)), broadcast(lowest));
}

/// Turns a query's scores (`vectors` vectors of keys) into exponentials relative to the new maximum, and rescales its
/// sum and result to it.
inline void softmax_row(const CachedAttentionCall& call, std::int64_t query, std::int64_t slot, std::int64_t k0,
                        std::int64_t vectors) {
  const AttentionScratch& t = call.tiles;
  const Visible seen = visible_to(call, query);
  float* scores = t.scores + slot * attention_key_tile;
  Vec top = broadcast(t.row_max[slot]);
  for (std::int64_t v = 0; v < vectors; ++v) {
    const Vec score = masked_scores(call, scores + v * vector_width, k0 + v * vector_width, seen);
    store(scores + v * vector_width, score);
    top = maximum(top, score);
  }
  const float max = reduce_max(top);
  const float factor = exponential(broadcast(t.row_max[slot] - max))[0];
  t.row_max[slot] = max;
  float* sum = t.row_sum + slot * attention_padding;
  Vec total = load(sum) * factor;
  for (std::int64_t v = 0; v < vectors; ++v) {
    const Vec p = exponential(load(scores + v * vector_width) - max);
    store_words(scores, v * vector_width, p);
    total += p;
  }
  store(sum, total);
  if (factor == 1.0F) return;
  float* result = t.result + slot * padded_size(call);
  for (std::int64_t i = 0; i < padded_size(call); i += vector_width) store(result + i, load(result + i) * factor);
}

/// Adds keys [k0, k0 + keys) to the results of a tile.
void add_keys(const CachedAttentionCall& call, const QueryTile& tile, std::int64_t k0, std::int64_t keys) {
  const AttentionScratch& t = call.tiles;
  const std::int64_t padded = padded_size(call);
  const std::int64_t vectors = (keys + vector_width - 1) / vector_width;
  pack_rows(rows_from(call, call.keys, k0), keys, call.head_size, t.keys);
  pack_transposed(t.keys, keys, call.head_size, t.keys_tiles);
  multiply({.a = t.query,
            .a_row = row_words(call.head_size),
            .b = t.keys_tiles,
            .b_step = attention_key_tile,
            .c = t.scores,
            .c_row = attention_key_tile,
            .rows = tile.count,
            .vectors = vectors,
            .depth = words_of(call.head_size),
            .factor = call.softcap > 0 ? call.scale : call.scale * score_unit});
  for (std::int64_t i = 0; i < tile.count; ++i) softmax_row(call, tile.q0 + i, i, k0, vectors);
  const ValueRows values = value_rows(call, k0, keys);
  multiply({.a = t.scores,
            .a_row = attention_key_tile,
            .b = values.data,
            .b_step = values.stride,
            .c = t.result,
            .c_row = padded,
            .rows = tile.count,
            .vectors = padded / vector_width,
            .depth = words_of(keys),
            .accumulate = true});
}

void attend_tile(const CachedAttentionCall& call, const QueryTile& tile) {
  const AttentionScratch& t = call.tiles;
  const std::int64_t padded = padded_size(call);
  const HeadRows<const void> queries{call.queries.data, call.query_stride, 0, call.queries.bf16};
  const HeadRows<void> outs{call.out.data, call.out_stride, 0, call.out.bf16};
  const auto of_head = [&](auto rows, std::int64_t query) {
    rows.first = query % call.shared_by * call.head_size;
    return rows;
  };
  for (std::int64_t i = 0; i < tile.count; ++i) {
    const std::int64_t query = tile.q0 + i;
    read_words(of_head(queries, query), query / call.shared_by, call.head_size, call.scale,
               t.query + i * row_words(call.head_size));
    t.row_max[i] = lowest;
    store(t.row_sum + i * attention_padding, Vec{});
    for (std::int64_t d = 0; d < padded; d += vector_width) store(t.result + i * padded + d, Vec{});
  }
  const std::int64_t end = visible_to(call, tile.q0 + tile.count - 1).end;
  const std::int64_t begin = visible_to(call, tile.q0).first;
  for (std::int64_t k0 = begin; k0 < end; k0 += attention_key_tile) {
    add_keys(call, tile, k0, smaller(attention_key_tile, end - k0));
  }
  for (std::int64_t i = 0; i < tile.count; ++i) {
    const std::int64_t query = tile.q0 + i;
    float sum = reduce_sum(load(t.row_sum + i * attention_padding));
    if (call.sinks != nullptr) sum += exp_scalar(call.sinks[query % call.shared_by] - t.row_max[i] * (1 / score_unit));
    write_row(of_head(outs, query), query / call.shared_by, call.head_size, 1.0F / sum, t.result + i * padded);
  }
}

void cached_attention_forward(const CachedAttentionCall& call) {
  const std::int64_t queries = call.rows * call.shared_by;
  for (std::int64_t q0 = 0; q0 < queries; q0 += attention_query_tile) {
    attend_tile(call, {q0, smaller(attention_query_tile, queries - q0)});
  }
}

}  // namespace

const CachedAttentionKernels cached_attention_kernels = {cached_attention_forward};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
