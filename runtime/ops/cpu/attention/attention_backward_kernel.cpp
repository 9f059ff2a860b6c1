// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/attention/attention_tiles.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

/// A query tile times a key tile.
struct Square {
  std::int64_t q0 = 0;
  std::int64_t rows = 0;
  std::int64_t k0 = 0;
  std::int64_t keys = 0;
  std::int64_t strip = 0;
};

/// Turns the scores of word_elements rows, capped if `Capped`, into p = exp(s - lse) and dscores into the gradient of
/// uncapped scores, both as depth rows and the latter as rows too; both zero for keys that a row does not see.
template <bool Capped>
inline void differentiate_rows(const AttentionCall& call, std::int64_t row, KeyRange columns, const KeyRange* seen) {
  float* scores = call.tiles.scores + row * attention_key_tile;
  float* dscores = call.tiles.dscores + row * attention_key_tile;
  float* dscore_rows = call.tiles.dscore_rows + row * attention_key_tile;
  for (std::int64_t at = columns.first; at < columns.end; at += vector_width) {
    Vec p[word_elements];
    Vec ds[word_elements];
    for (std::int64_t i = 0; i < word_elements; ++i) {
      const IVec mask = lanes_in(at, seen[i]);
      const Vec score = load(scores + i * attention_key_tile + at);
      p[i] = select(mask, exponential(score - broadcast(call.tiles.row_max[row + i])), Vec{});
      ds[i] = p[i] * (load(dscores + i * attention_key_tile + at) -
                      broadcast(call.tiles.row_sum[(row + i) * attention_padding]));
      if constexpr (Capped) ds[i] *= Softcap::slope_of(score * (1 / score_unit), broadcast(call.softcap));
      ds[i] = select(mask, ds[i], Vec{});
    }
    store_depth(scores + at, p);
    store_depth(dscores + at, ds);
    if constexpr (word_elements > 1) {
      for (std::int64_t i = 0; i < word_elements; ++i) store_words(dscore_rows + i * attention_key_tile, at, ds[i]);
    }
  }
}

/// Computes p and ds of the square, and dq (queries, D) += ds k.
void differentiate_scores(const AttentionCall& call, const Square& square) {
  const AttentionScratch& t = call.tiles;
  const std::int64_t padded = round_up(call.head_size, attention_padding);
  for (std::int64_t r = 0; r < square.rows; r += square.strip) {
    const std::int64_t height = smaller(square.strip, square.rows - r);
    KeyRange columns = strip_keys(call, square.q0 + r, height, square.k0, square.keys);
    if (columns.first >= columns.end) continue;
    // add_key_gradients() reads strips of keys, and ends may lie inside a strip: the rest becomes zero.
    if (call.ends != nullptr) columns.end = round_up(columns.end, attention_padding);
    float* scores = t.scores + r * attention_key_tile;
    float* dscores = t.dscores + r * attention_key_tile;
    TileProduct product = score_product(call, r, height, square.k0, columns);
    multiply(product);
    product.a = t.dout + r * product.a_row;
    product.b = t.values_tiles + square.k0 * product.a_row + columns.first;
    product.c = dscores + columns.first;
    product.factor = 1;
    multiply(product);
    if (call.softcap > 0) cap_scores(call, height, columns, scores);
    for (std::int64_t row = r; row < r + height; row += word_elements) {
      KeyRange seen[word_elements];  // empty for a row past the last
      for (std::int64_t i = 0; i < smaller(word_elements, r + height - row); ++i) {
        seen[i] = seen_keys(call, square.q0 + row + i, square.k0, square.keys);
      }
      call.softcap > 0 ? differentiate_rows<true>(call, row, columns, seen)
                       : differentiate_rows<false>(call, row, columns, seen);
    }
    multiply({.a = t.dscore_rows + r * attention_key_tile + columns.first / word_elements,
              .a_row = attention_key_tile,
              .b = t.keys + (square.k0 + columns.first) / word_elements * padded,
              .b_step = padded,
              .c = t.result + r * padded,
              .c_row = padded,
              .rows = height,
              .vectors = padded / vector_width,
              .depth = words_of(columns.end - columns.first),
              .accumulate = adds_to_result(call, square.k0)});
  }
}

/// Returns the first row of the square whose query sees `key`; the square's rows if none does.
std::int64_t first_row_that_sees(const AttentionCall& call, const Square& square, std::int64_t key) {
  if (!call.causal) return 0;
  if (call.ends == nullptr) return larger(0, key - square.q0);
  std::int64_t row = 0;
  while (row < square.rows && call.ends[square.q0 + row] <= key) ++row;
  return row;
}

/// Computes dv (keys, D) += p^T do and dk (keys, D) += ds^T q.
void add_key_gradients(const AttentionCall& call, const Square& square) {
  const AttentionScratch& t = call.tiles;
  const std::int64_t padded = round_up(call.head_size, attention_padding);
  for (std::int64_t k = 0; k < square.keys; k += square.strip) {
    const std::int64_t height = smaller(square.strip, square.keys - k);
    const std::int64_t first =
        first_row_that_sees(call, square, square.k0 + k) / word_elements * word_elements;  // its neighbour's p is zero
    const std::int64_t behind = square.k0 + k + height - 1 + call.window - square.q0;
    const std::int64_t end = call.window > 0 ? smaller(behind, square.rows) : square.rows;
    if (first >= end) continue;
    TileProduct product{.a = t.scores + first * attention_key_tile + k,
                        .a_row = 1,
                        .a_step = word_elements * attention_key_tile,
                        .b = t.dout_depth + first / word_elements * padded,
                        .b_step = padded,
                        .c = t.dvalues + (square.k0 + k) * padded,
                        .c_row = padded,
                        .rows = height,
                        .vectors = padded / vector_width,
                        .depth = words_of(end - first),
                        .accumulate = true};
    multiply(product);
    product.a = t.dscores + first * attention_key_tile + k;
    product.b = t.query_depth + first / word_elements * padded;
    product.c = t.dkeys + (square.k0 + k) * padded;
    multiply(product);
  }
}

/// Reads query and output gradient rows of the tile, their log-sum-exp, and delta = do . o.
void read_query_tile(const AttentionCall& call, std::int64_t head, std::int64_t q0, std::int64_t rows) {
  const AttentionScratch& t = call.tiles;
  const std::int64_t size = call.head_size;
  const std::int64_t padded = round_up(size, attention_padding);
  const HeadRows queries = query_rows(call, call.qkv, head);
  const HeadRows outs = out_rows(call, static_cast<const void*>(call.out), head);
  const HeadRows douts = out_rows(call, call.dout, head);
  float* out = t.result;  // until the first product
  float* dout = t.result + padded;
  for (std::int64_t i = size; i < padded; ++i) out[i] = dout[i] = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    read_row(outs, q0 + r, size, 1.0F, out);
    read_row(douts, q0 + r, size, 1.0F, dout);
    Vec delta{};
    for (std::int64_t i = 0; i < padded; i += vector_width) delta += load(out + i) * load(dout + i);
    t.row_sum[r * attention_padding] = reduce_sum(delta);
    t.row_max[r] = call.lse[(q0 + r) * call.heads + head] * score_unit;
    read_words(queries, q0 + r, size, call.scale, t.query + r * row_words(size));
    read_words(douts, q0 + r, size, 1.0F, t.dout + r * row_words(size));
  }
  if constexpr (word_elements > 1) {
    pack_depth(queries, q0, rows, size, t.query_depth);
    pack_depth(douts, q0, rows, size, t.dout_depth);
  }
}

void differentiate_query_tile(const AttentionCall& call, std::int64_t head, std::int64_t q0) {
  const AttentionScratch& t = call.tiles;
  const std::int64_t padded = round_up(call.head_size, attention_padding);
  const std::int64_t rows = smaller(attention_query_tile, call.length - q0);
  read_query_tile(call, head, q0, rows);
  const std::int64_t end = end_of_keys(call, q0 + rows - 1);
  clear_windowed(call, padded);
  for (std::int64_t k0 = first_key_tile(call, q0); k0 < end; k0 += attention_key_tile) {
    const std::int64_t keys = smaller(attention_key_tile, call.length - k0);
    const Square square{q0, rows, k0, keys, strip_rows(call, q0, k0, keys)};
    differentiate_scores(call, square);
    add_key_gradients(call, square);
  }
  const HeadRows dqueries = query_rows(call, call.dqkv, head);
  for (std::int64_t r = 0; r < rows; ++r)
    write_row(dqueries, q0 + r, call.head_size, call.scale, t.result + r * padded);
}

}  // namespace

void attention_backward(const AttentionCall& call);

void attention_backward(const AttentionCall& call) {
  const AttentionScratch& t = call.tiles;
  const std::int64_t padded = round_up(call.head_size, attention_padding);
  pack_rows(value_rows(call, call.qkv), call.length, call.head_size, t.keys);
  pack_transposed(t.keys, call.length, call.head_size, t.values_tiles);
  pack_rows(key_rows(call, call.qkv), call.length, call.head_size, t.keys);
  pack_transposed(t.keys, call.length, call.head_size, t.keys_tiles);
  if constexpr (word_elements > 1) pack_depth(key_rows(call, call.qkv), 0, call.length, call.head_size, t.keys);
  for (std::int64_t i = 0; i < call.length * padded; ++i) t.dkeys[i] = t.dvalues[i] = 0;
  const std::int64_t shared_by = call.heads / call.kv_heads;
  for (std::int64_t i = 0; i < shared_by; ++i) {
    for (std::int64_t tile = 0; tile < call.query_tile_count; ++tile) {
      differentiate_query_tile(call, call.kv_head * shared_by + i, call.query_tiles[tile]);
    }
  }
  for (std::int64_t row = 0; row < call.length; ++row) {
    write_row(key_rows(call, call.dqkv), row, call.head_size, word_elements > 1 ? call.scale : 1,
              t.dkeys + row * padded);
    write_row(value_rows(call, call.dqkv), row, call.head_size, 1.0F, t.dvalues + row * padded);
  }
}

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
