// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/delta/delta_kernels.hpp"

#include "runtime/ops/cpu/attention/attention_products.hpp"
#include "runtime/ops/cpu/storage.hpp"
#include "runtime/ops/delta_math.hpp"
#include "runtime/ops/delta_operators.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

using Gates = element::DeltaGatesOf<VectorMath>;

/// A matrix by strides: elements of a row are `step` apart.
struct Factor {
  const float* data;
  std::int64_t row;
  std::int64_t step;
};
[[nodiscard]] MAESTRO_INLINE Factor plain(const float* data, std::int64_t row) {
  return {data, row, 1};
}
[[nodiscard]] MAESTRO_INLINE Factor flipped(const float* data, std::int64_t row) {
  return {data, 1, row};
}

/// Rows and columns of a result, the columns padded, and the terms of each element.
struct Extent {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
};

/// Computes c = a b, or c += a b; rows of b and c are `columns` long.
void multiply_into(float* c, Factor a, const float* b, Extent of, bool accumulate = false) {
  multiply({.a = a.data,
            .a_row = a.row,
            .a_step = a.step,
            .b = b,
            .b_step = of.columns,
            .c = c,
            .c_row = of.columns,
            .rows = of.rows,
            .vectors = of.columns / vector_width,
            .depth = of.depth,
            .accumulate = accumulate});
}

[[nodiscard]] MAESTRO_INLINE std::int64_t padded(std::int64_t value) {
  return (value + delta_padding - 1) / delta_padding * delta_padding;
}

/// Transposes (padded rows, columns) to (columns, to_row).
void transpose_tile(const float* from, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_row) {
  for (std::int64_t row = 0; row < padded(rows); row += vector_width) {
    for (std::int64_t column = 0; column < columns; column += vector_width) {
      Vec square[vector_width];
      for (int i = 0; i < vector_width; ++i) square[i] = load(from + (row + i) * columns + column);
      transpose(square);
      for (int i = 0; i < vector_width; ++i) store(to + (column + i) * to_row + row, square[i]);
    }
  }
}

/// Loads columns [first, first + size) of rows that are `stride` apart to rows of `width`; the rest of the tile is 0.
void load_tile(In from, std::int64_t rows, std::int64_t stride, std::int64_t first, std::int64_t size, float* to,
               std::int64_t width) {
  typed(from, [&](const auto* values) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for_vectors(size, [&](std::int64_t i, auto part) {
        part.store(to + row * width + i, part.load(values + row * stride + first + i));
      });
      for (std::int64_t i = size; i < width; ++i) to[row * width + i] = 0;
    }
  });
  for (std::int64_t i = rows * width; i < padded(rows) * width; ++i) to[i] = 0;
}

void store_tile(const float* from, std::int64_t width, std::int64_t rows, Out to, std::int64_t stride,
                std::int64_t first, std::int64_t size) {
  typed(to, [&](auto* values) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for_vectors(size, [&](std::int64_t i, auto part) {
        part.store(values + row * stride + first + i, part.load(from + row * width + i));
      });
    }
  });
}

/// Returns the dot product of two padded rows.
[[nodiscard]] float dot(const float* a, const float* b, std::int64_t width) {
  Vec sum = {};
  for (std::int64_t i = 0; i < width; i += vector_width) sum += load(a + i) * load(b + i);
  return reduce_sum(sum);
}

void scale_row(float* row, float factor, std::int64_t width) {
  for (std::int64_t i = 0; i < width; i += vector_width) store(row + i, load(row + i) * factor);
}

/// Sets row to = factor * from.
void scaled_row(float* to, const float* from, float factor, std::int64_t width) {
  for (std::int64_t i = 0; i < width; i += vector_width) store(to + i, load(from + i) * factor);
}

/// Computes to += factor * from.
void add_row(float* to, const float* from, float factor, std::int64_t width) {
  for (std::int64_t i = 0; i < width; i += vector_width) store(to + i, load(to + i) + load(from + i) * factor);
}

/// A chunk of a key head and the value head at work.
class Chunk {
 public:
  Chunk(const DeltaChunk& call, const DeltaTiles& tiles)
      : call_(call),
        t_(tiles),
        rows_(call.rows),
        key_(tiles.key_row),
        value_(tiles.value_row),
        key_scale_(1.0F / square_root(static_cast<float>(call.shape.key_size))) {}

  [[nodiscard]] std::int64_t heads() const { return call_.shape.value_heads / call_.shape.key_heads; }
  [[nodiscard]] std::int64_t state_size() const { return key_ * value_; }

  /// Loads queries and keys, and what all value heads share.
  void load_keys() {
    const DeltaShape& shape = call_.shape;
    normed(t_.q, t_.lengths_q, call_.key_head * shape.key_size, key_scale_);
    normed(t_.k, t_.lengths_k, shape.key_columns() + call_.key_head * shape.key_size, 1.0F);
    transpose_tile(t_.k, rows_, key_, t_.k_transposed, delta_chunk);
    const Extent pairs{rows_, delta_chunk, shape.key_size};
    multiply_into(t_.kk, plain(t_.k, key_), t_.k_transposed, pairs);
    multiply_into(t_.qk, plain(t_.q, key_), t_.k_transposed, pairs);
  }

  /// Loads a value head's values and gates and computes N, with -A in t.a, and P.
  void load_value_head(std::int64_t head, const float* state) {
    const DeltaShape& shape = call_.shape;
    load_tile(call_.qkv, rows_, shape.qkv_columns(), 2 * shape.key_columns() + head * shape.value_size,
              shape.value_size, t_.v, value_);
    load_gates(head);
    for (std::int64_t i = 0; i < rows_; ++i) pair_row(i);
    // N before the solution: beta (V - e K S). K S stays in t.out.
    multiply_into(t_.out, plain(t_.k, key_), state, {rows_, value_, shape.key_size});
    for (std::int64_t i = 0; i < rows_; ++i) {
      scaled_row(row(t_.n, i), row(t_.v, i), t_.beta[i], value_);
      add_row(row(t_.n, i), row(t_.out, i), -t_.beta[i] * t_.e[i], value_);
    }
    solve(t_.n);
  }

  /// Computes out.
  void results(const float* state) {
    multiply_into(t_.out, plain(t_.q, key_), state, {rows_, value_, call_.shape.key_size});
    for (std::int64_t i = 0; i < rows_; ++i) scale_row(row(t_.out, i), t_.e[i], value_);
    multiply_into(t_.out, plain(t_.p, delta_chunk), t_.n, {rows_, value_, rows_}, true);
  }

  void next_state(float* state) {
    const float last = t_.e[rows_ - 1];
    for (std::int64_t i = 0; i < state_size(); i += vector_width) store(state + i, load(state + i) * last);
    for (std::int64_t i = 0; i < rows_; ++i)
      scaled_row(key_row(t_.weighted, i), key_row(t_.k, i), t_.until_end[i], key_);
    multiply_into(state, flipped(t_.weighted, key_), t_.n, {call_.shape.key_size, value_, rows_}, true);
  }

  [[nodiscard]] float* row(float* tile, std::int64_t i) const { return tile + i * value_; }
  [[nodiscard]] float* key_row(float* tile, std::int64_t i) const { return tile + i * key_; }

  /// Solves (I + A) X = X.
  void solve(float* x) const {
    for (std::int64_t first = 0; first < rows_; first += block) {
      const std::int64_t end = smaller(first + block, rows_);
      add_known(x, plain(t_.a + first * delta_chunk, delta_chunk), first, end - first, 0, first);
      for (std::int64_t i = first + 1; i < end; ++i) {
        add_known(x, plain(t_.a + i * delta_chunk + first, delta_chunk), i, 1, first, i - first);
      }
    }
  }
  /// Solves (I + A)^T X = X.
  void solve_transposed(float* x) const {
    for (std::int64_t first = (rows_ - 1) / block * block; first >= 0; first -= block) {
      const std::int64_t end = smaller(first + block, rows_);
      add_known(x, flipped(t_.a + end * delta_chunk + first, delta_chunk), first, end - first, end, rows_ - end);
      for (std::int64_t i = end - 2; i >= first; --i) {
        add_known(x, flipped(t_.a + (i + 1) * delta_chunk + i, delta_chunk), i, 1, i + 1, end - i - 1);
      }
    }
  }

 private:
  static constexpr std::int64_t block = 8;
  [[nodiscard]] static std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

  /// Adds to `rows` rows of X from `to` on the products of -A with the `count` rows from `from` on.
  void add_known(float* x, Factor minus_a, std::int64_t to, std::int64_t rows, std::int64_t from,
                 std::int64_t count) const {
    if (count > 0) multiply_into(row(x, to), minus_a, row(x, from), {rows, value_, count}, true);
  }

  /// Loads rows divided by their lengths; keeps 1 / length.
  void normed(float* tile, float* inverse, std::int64_t first, float factor) const {
    load_tile(call_.qkv, rows_, call_.shape.qkv_columns(), first, call_.shape.key_size, tile, key_);
    for (std::int64_t i = 0; i < rows_; ++i) {
      float* x = key_row(tile, i);
      inverse[i] = 1.0F / square_root(dot(x, x, key_) + element::delta_norm_epsilon);
      scale_row(x, inverse[i] * factor, key_);
    }
  }

  void load_gates(std::int64_t head) const {
    const std::int64_t heads = call_.shape.value_heads;
    const Vec a_log = broadcast(call_.a_log[head]), dt_bias = broadcast(call_.dt_bias[head]);
    float sum = 0;
    typed(call_.gates, [&](const auto* gates) {
      for (std::int64_t i = 0; i < rows_; ++i) {
        t_.beta[i] = sigmoid(broadcast(number(gates[2 * i * heads + head])))[0];
        t_.g[i] = Gates::decay(broadcast(number(gates[(2 * i + 1) * heads + head])), a_log, dt_bias)[0];
        sum += t_.g[i];
        t_.c[i] = sum;
        t_.e[i] = exp_scalar(sum);
      }
    });
    for (std::int64_t i = rows_; i < padded(rows_); ++i) t_.c[i] = sum;
    for (std::int64_t i = 0; i < rows_; ++i) t_.until_end[i] = exp_scalar(sum - t_.c[i]);
  }

  /// Computes row i of -A and P, with zeros above.
  void pair_row(std::int64_t i) const {
    const std::int64_t at = i * delta_chunk;
    for (std::int64_t j = 0; j < padded(rows_); j += vector_width) {
      const IVec column = lane_numbers() + static_cast<std::int32_t>(j);
      const Vec d = exp(t_.c[i] - load(t_.c + j));
      const auto own = static_cast<std::int32_t>(i);
      store(t_.a + at + j, select(column < own, -t_.beta[i] * d * load(t_.kk + at + j), Vec{}));
      store(t_.p + at + j, select(column <= own, d * load(t_.qk + at + j), Vec{}));
    }
  }

  [[nodiscard]] static float number(float value) { return value; }
  [[nodiscard]] static float number(std::uint16_t value) { return from_bf16(value); }

  const DeltaChunk& call_;
  const DeltaTiles& t_;
  std::int64_t rows_;
  std::int64_t key_;
  std::int64_t value_;
  float key_scale_;
};

void forward(const DeltaChunk& call, const DeltaTiles& tiles, Out out) {
  Chunk chunk(call, tiles);
  chunk.load_keys();
  for (std::int64_t i = 0; i < chunk.heads(); ++i) {
    const std::int64_t head = call.key_head * chunk.heads() + i, size = call.shape.value_size;
    float* state = tiles.state + i * chunk.state_size();
    chunk.load_value_head(head, state);
    chunk.results(state);
    store_tile(tiles.out, tiles.value_row, call.rows, out, call.shape.value_columns(), head * size, size);
    chunk.next_state(state);
  }
}

/// The gradients of a chunk. With dN = P^T dout + (l K) dS+ (l = e_last / e), dR = (I + A)^-T dN,
/// dP = lower(dout N^T) D, H = -strictly_lower(dR N^T) D and dZ = -dR S^T:
///   dQ = e (dout S^T) + dP K      dK = dP^T Q + l (N dS+^T) + beta e dZ + beta (H K) + (beta H)^T K
///   dV = beta dR                  dbeta = rows<dR, V> + e rows<dZ, K> + rows(H K K^T)
///   dc = rowsum(X) - colsum(X) + e rows<dout S^T, Q> + beta e rows<dZ, K> - m, dc_last += sum m + e_last <S, dS+>
///   X = dP Q K^T + H beta K K^T, elementwise, m = l rows<K, N dS+^T>
///   dS = (e Q)^T dout + e_last dS+ - (beta e K)^T dR
class ChunkBackward {
 public:
  ChunkBackward(const DeltaChunkBackward& call, const DeltaTiles& tiles)
      : call_(call),
        t_(tiles),
        chunk_(call.chunk, tiles),
        rows_(call.chunk.rows),
        size_(call.chunk.shape.key_size),
        key_(tiles.key_row),
        value_(tiles.value_row) {}

  void run() {
    const DeltaShape& shape = call_.chunk.shape;
    chunk_.load_keys();
    for (std::int64_t i = 0; i < rows_ * key_; ++i) t_.dq[i] = t_.dk[i] = 0;
    for (std::int64_t i = 0; i < chunk_.heads(); ++i) {
      const std::int64_t head = call_.chunk.key_head * chunk_.heads() + i;
      value_head(head, t_.state + i * chunk_.state_size(), t_.dstate + i * chunk_.state_size());
      gate_gradients(head);
      store_tile(t_.v, value_, rows_, call_.dqkv, shape.qkv_columns(),
                 2 * shape.key_columns() + head * shape.value_size, shape.value_size);
    }
    const std::int64_t first = call_.chunk.key_head * size_;
    norm_gradient(t_.dq, t_.q, t_.lengths_q, 1.0F / square_root(static_cast<float>(size_)), first);
    norm_gradient(t_.dk, t_.k, t_.lengths_k, 1.0F, shape.key_columns() + first);
  }

 private:
  /// Adds a value head's part to dq and dk, leaves dV in t.v, and dc and dbeta.
  void value_head(std::int64_t head, const float* state, float* dstate) {
    const DeltaShape& shape = call_.chunk.shape;
    chunk_.load_value_head(head, state);
    load_tile(call_.dout, rows_, shape.value_columns(), head * shape.value_size, shape.value_size, t_.dout, value_);
    // dN, dR
    for (std::int64_t i = 0; i < rows_; ++i) scaled_row(key(t_.weighted, i), key(t_.k, i), t_.until_end[i], key_);
    multiply_into(t_.dr, plain(t_.weighted, key_), dstate, {rows_, value_, size_});
    multiply_into(t_.dr, flipped(t_.p, delta_chunk), t_.dout, {rows_, value_, rows_}, true);
    chunk_.solve_transposed(t_.dr);
    // dP, H
    for (std::int64_t i = rows_ * value_; i < padded(rows_) * value_; ++i) t_.n[i] = 0;
    transpose_tile(t_.n, rows_, value_, t_.n_transposed, delta_chunk);
    const Extent pairs{rows_, delta_chunk, shape.value_size};
    multiply_into(t_.dp, plain(t_.dout, value_), t_.n_transposed, pairs);
    multiply_into(t_.h, plain(t_.dr, value_), t_.n_transposed, pairs);
    for (std::int64_t i = 0; i < padded(rows_); ++i) t_.dc[i] = 0;
    for (std::int64_t i = 0; i < rows_; ++i) pair_gradients(i);
    // dout S^T, -dZ = dR S^T, N dS+^T
    transpose_tile(state, size_, value_, t_.state_transposed, key_);
    const Extent back{rows_, key_, shape.value_size};
    multiply_into(t_.by_query, plain(t_.dout, value_), t_.state_transposed, back);
    multiply_into(t_.by_key, plain(t_.dr, value_), t_.state_transposed, back);
    transpose_tile(dstate, size_, value_, t_.state_transposed, key_);
    multiply_into(t_.by_end, plain(t_.n, value_), t_.state_transposed, back);
    row_gradients(dot(state, dstate, chunk_.state_size()));
    state_gradient(dstate);
    for (std::int64_t i = 0; i < rows_; ++i) scaled_row(t_.v + i * value_, t_.dr + i * value_, t_.beta[i], value_);
  }

  /// Makes rows i of dP and of beta H from products with N, and adds X to dc, H K K^T to dbeta.
  void pair_gradients(std::int64_t i) const {
    const std::int64_t at = i * delta_chunk;
    const auto own = static_cast<std::int32_t>(i);
    Vec sum = {}, sum_beta = {};
    for (std::int64_t j = 0; j < padded(rows_); j += vector_width) {
      const IVec column = lane_numbers() + static_cast<std::int32_t>(j);
      const Vec d = exp(t_.c[i] - load(t_.c + j));
      const Vec dp = select(column <= own, load(t_.dp + at + j) * d, Vec{});
      const Vec h = select(column < own, -load(t_.h + at + j) * d, Vec{});
      const Vec by_beta = h * load(t_.kk + at + j);
      const Vec x = dp * load(t_.qk + at + j) + by_beta * t_.beta[i];
      store(t_.dp + at + j, dp);
      store(t_.h + at + j, h * t_.beta[i]);
      sum += x;
      sum_beta += by_beta;
      store(t_.dc + j, load(t_.dc + j) - x);
    }
    t_.dc[i] += reduce_sum(sum);
    t_.dbeta[i] = reduce_sum(sum_beta);
  }

  /// Adds what rows have alone to dq, dk, dc and dbeta; `states` is <S, dS+>.
  void row_gradients(float states) const {
    float ends = 0;
    for (std::int64_t i = 0; i < rows_; ++i) {
      const float e = t_.e[i], beta = t_.beta[i];
      const float by_query = e * dot(key(t_.by_query, i), key(t_.q, i), key_);
      const float by_key = -e * dot(key(t_.by_key, i), key(t_.k, i), key_);
      const float by_end = t_.until_end[i] * dot(key(t_.by_end, i), key(t_.k, i), key_);
      t_.dbeta[i] += dot(t_.dr + i * value_, t_.v + i * value_, value_) + by_key;
      t_.dc[i] += by_query + beta * by_key - by_end;
      ends += by_end;
      add_row(key(t_.dq, i), key(t_.by_query, i), e, key_);
      add_row(key(t_.dk, i), key(t_.by_end, i), t_.until_end[i], key_);
      add_row(key(t_.dk, i), key(t_.by_key, i), -beta * e, key_);
    }
    t_.dc[rows_ - 1] += ends + t_.e[rows_ - 1] * states;
    const Extent rows{rows_, key_, rows_};
    multiply_into(t_.dq, plain(t_.dp, delta_chunk), t_.k, rows, true);
    multiply_into(t_.dk, flipped(t_.dp, delta_chunk), t_.q, rows, true);
    multiply_into(t_.dk, plain(t_.h, delta_chunk), t_.k, rows, true);
    multiply_into(t_.dk, flipped(t_.h, delta_chunk), t_.k, rows, true);
  }

  void state_gradient(float* dstate) const {
    const Extent state{size_, value_, rows_};
    scale_row(dstate, t_.e[rows_ - 1], chunk_.state_size());
    for (std::int64_t i = 0; i < rows_; ++i) scaled_row(key(t_.weighted, i), key(t_.q, i), t_.e[i], key_);
    multiply_into(dstate, flipped(t_.weighted, key_), t_.dout, state, true);
    for (std::int64_t i = 0; i < rows_; ++i) {
      scaled_row(key(t_.weighted, i), key(t_.k, i), -t_.beta[i] * t_.e[i], key_);
    }
    multiply_into(dstate, flipped(t_.weighted, key_), t_.dr, state, true);
  }

  /// Turns dbeta and dc into the gradients of b and a, and adds the head's to da_log and ddt_bias.
  void gate_gradients(std::int64_t head) const {
    const std::int64_t heads = call_.chunk.shape.value_heads;
    const Vec a_log = broadcast(call_.chunk.a_log[head]), dt_bias = broadcast(call_.chunk.dt_bias[head]);
    float dg = 0, da_log = 0, ddt_bias = 0;
    typed(call_.chunk.gates, [&](const auto* gates) {
      for (std::int64_t i = rows_ - 1; i >= 0; --i) {
        dg += t_.dc[i];
        da_log += dg * t_.g[i];
        const Vec a = {number(gates[(2 * i + 1) * heads + head])};
        const float da = dg * Gates::decay_slope(a, a_log, dt_bias)[0];
        ddt_bias += da;
        store_number(t_.dbeta[i] * t_.beta[i] * (1.0F - t_.beta[i]), 2 * i * heads + head);
        store_number(da, (2 * i + 1) * heads + head);
      }
    });
    if (call_.da_log != nullptr) call_.da_log[head] += da_log;
    if (call_.ddt_bias != nullptr) call_.ddt_bias[head] += ddt_bias;
  }

  /// Stores the gradient of rows before they were divided by their lengths and multiplied by `factor`.
  void norm_gradient(float* dy, const float* y, const float* inverse, float factor, std::int64_t first) const {
    for (std::int64_t i = 0; i < rows_; ++i) {
      float* gradient = key(dy, i);
      const float along = dot(gradient, y + i * key_, key_) * inverse[i] / factor;
      scale_row(gradient, inverse[i] * factor, key_);
      add_row(gradient, y + i * key_, -along, key_);
    }
    store_tile(dy, key_, rows_, call_.dqkv, call_.chunk.shape.qkv_columns(), first, size_);
  }

  [[nodiscard]] float* key(float* tile, std::int64_t i) const { return tile + i * key_; }
  [[nodiscard]] static float number(float value) { return value; }
  [[nodiscard]] static float number(std::uint16_t value) { return from_bf16(value); }
  void store_number(float value, std::int64_t at) const {
    if (call_.dgates.bf16) {
      static_cast<std::uint16_t*>(call_.dgates.data)[at] = to_bf16(value);
    } else {
      static_cast<float*>(call_.dgates.data)[at] = value;
    }
  }

  const DeltaChunkBackward& call_;
  const DeltaTiles& t_;
  Chunk chunk_;
  std::int64_t rows_;
  std::int64_t size_;  // dk
  std::int64_t key_;
  std::int64_t value_;
};

void backward(const DeltaChunkBackward& call, const DeltaTiles& tiles) {
  ChunkBackward(call, tiles).run();
}

}  // namespace

const DeltaKernels delta_kernels = {forward, backward};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
