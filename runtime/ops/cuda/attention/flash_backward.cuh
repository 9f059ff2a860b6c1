// SPDX-License-Identifier: Apache-2.0
// Attention backward (FlashAttention-2, Dao 2023, algorithm 2) without additions between blocks: the first kernel owns
// queries and makes dq, the second owns keys and makes dk and dv. Scores are recomputed in both, which costs two
// products in seven and makes every sum's order fixed. Formulas: runtime/ops/cpu/attention/attention.hpp.
#pragma once

#include "runtime/ops/cuda/attention/flash_forward.cuh"

namespace maestro::cuda {

template <class T>
struct FlashDelta {
  const T* dout;
  const T* out;
  float* delta;       ///< (M, H)
  std::int64_t rows;  ///< M H
  std::int32_t head_size;
};

inline constexpr int delta_threads = 128;

/// delta = sum over a head's columns of dout * out; a warp per row and head, which are adjacent in out.
template <class T>
__global__ void __launch_bounds__(delta_threads) flash_delta_kernel(FlashDelta<T> p) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warp_count() + warp_index();
  if (row >= p.rows) return;
  float sum = 0;
  for (int column = lane_index() * 2; column < p.head_size; column += 2 * warp_size) {
    const Pack<T, 2> of_dout = load_pack<T, 2>(p.dout + row * p.head_size + column);
    const Pack<T, 2> of_out = load_pack<T, 2>(p.out + row * p.head_size + column);
    for (int i = 0; i < 2; ++i) sum += to_float(of_dout.values[i]) * to_float(of_out.values[i]);
  }
  sum = warp_sum(sum);
  if (lane_index() == 0) p.delta[row] = sum;
}

template <class T>
struct FlashBackward {
  FlashProblem problem;
  const T* qkv;
  const T* dout;
  const float* lse;
  const float* delta;
  T* dqkv;
};

/// Applies shape_scores(), and writes the soft cap's derivative at each score, unless `Plain`.
template <bool Plain, int S>
__device__ __forceinline__ void shape_scores(float (&scores)[S][4], float (&slopes)[S][4],
                                             const FlashProblem& problem) {
  if constexpr (!Plain) {
    shape_scores(scores, problem);
    MAESTRO_UNROLL
    for (int n = 0; n < S; ++n) {
      for (int i = 0; i < 4; ++i) {
        slopes[n][i] = problem.softcap == 0 ? 1.0F : element::Softcap::slope_of(scores[n][i], problem.softcap);
      }
    }
  }
}
/// Multiplies score gradients by their slopes, unless `Plain`.
template <bool Plain, int S>
__device__ __forceinline__ void multiply_by_slopes(float (&dscores)[S][4], const float (&slopes)[S][4]) {
  if constexpr (!Plain) {
    MAESTRO_UNROLL
    for (int n = 0; n < S; ++n) {
      for (int i = 0; i < 4; ++i) dscores[n][i] *= slopes[n][i];
    }
  }
}

/// lse (times log2 e) and delta of the two rows that a lane shares with its quad; zeros from `end` on.
struct LaneRowValues {
  float lse_log2[2];
  float delta[2];
  template <class T>
  __device__ __forceinline__ LaneRowValues(const FlashBackward<T>& p, int head, std::int64_t first, std::int64_t end) {
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first + row_of_lane(half);
      const bool inside = row < end;
      lse_log2[half] = inside ? p.lse[row * p.problem.heads + head] * log2_of_e : 0.0F;
      delta[half] = inside ? p.delta[row * p.problem.heads + head] : 0.0F;
    }
  }
  /// Turns dout . v into the gradient of the shaped score.
  template <int S>
  __device__ __forceinline__ void to_score_gradients(float (&products)[S][4], const float (&scores)[S][4],
                                                     float scale_log2) const {
    MAESTRO_UNROLL
    for (int n = 0; n < S; ++n) {
      MAESTRO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float probability = exp2f(scores[n][i] * scale_log2 - lse_log2[i / 2]);
        products[n][i] = probability * (products[n][i] - delta[i / 2]);
      }
    }
  }
};

/// Grid: (tile numbers, H).
template <class T, int Width, bool Plain>
__global__ void __launch_bounds__(FlashGeometry<T, Width>::threads) flash_dq_kernel(FlashBackward<T> p) {
  using Geometry = FlashGeometry<T, Width>;
  constexpr int streamed = Geometry::streamed_backward;
  constexpr int stride = Geometry::stride;
  const FlashProblem& problem = p.problem;
  const FlashTile tile = problem.query_tile(Geometry::own_rows);
  if (!problem.has_queries(tile)) return;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (problem.heads / problem.kv_heads);
  const int columns = padded_columns(problem.head_size);

  constexpr int streamed_tile = streamed * stride;
  using Scores = float[streamed / mma_columns][4];
  T* q = shared_memory<T>();
  T* dout = q + Geometry::own_rows * stride;
  T* k = dout + Geometry::own_rows * stride;
  T* v = k + Geometry::stages * streamed_tile;
  T* strip = v + Geometry::stages * streamed_tile + warp_index() * Geometry::template strip<streamed>;
  load_tiles<T, Geometry::own_rows, stride>(q, problem.query(p.qkv, head), dout, problem.head_of_out(p.dout, head),
                                            tile.first, tile.end, problem.head_size);

  const std::int64_t first_query = tile.first + warp_index() * warp_rows;
  const LaneRowValues row_values(p, head, first_query, tile.end);
  const float scale_log2 = problem.shaped_scale<Plain>() * log2_of_e;
  float dq[Width / mma_columns][4];
  set_zero(dq);
  const auto load = [&](std::int64_t key, int stage) {
    load_tiles<T, streamed, stride>(k + stage * streamed_tile, problem.key(p.qkv, kv_head), v + stage * streamed_tile,
                                    problem.value(p.qkv, kv_head), key, tile.stop, problem.head_size);
  };
  const auto compute = [&](std::int64_t key, int stage) {
    const T* k_tile = k + stage * streamed_tile;
    Scores scores;
    Scores dscores;
    Scores slopes;
    set_zero(scores);
    set_zero(dscores);
    multiply_rows(scores, q + warp_index() * warp_rows * stride, k_tile, stride, columns);
    multiply_rows(dscores, dout + warp_index() * warp_rows * stride, v + stage * streamed_tile, stride, columns);
    shape_scores<Plain>(scores, slopes, problem);
    hide_keys<Plain>(scores, first_query, key, tile, problem);
    row_values.to_score_gradients(dscores, scores, scale_log2);
    multiply_by_slopes<Plain>(dscores, slopes);
    multiply_strip(dq, dscores, k_tile, stride, columns, strip);
  };
  stream_tiles<Geometry::stages>(problem.first_key<Plain>(tile), problem.end_of_keys<Plain>(tile), streamed, load,
                                 compute);
  store_rows(dq, {problem.scale, problem.scale}, problem.query(p.dqkv, head), first_query, tile.end, problem.head_size);
}

/// lse (times log2 e) and delta of a head's rows [first, first + Rows); zeros from `stop` on.
template <int Rows, class T>
__device__ __forceinline__ void load_row_values(float* lse_log2, float* delta, const FlashBackward<T>& p, int head,
                                                std::int64_t first, std::int64_t stop) {
  for (int i = static_cast<int>(threadIdx.x); i < Rows; i += static_cast<int>(blockDim.x)) {
    const bool inside = first + i < stop;
    const std::int64_t place = (first + i) * p.problem.heads + head;
    lse_log2[i] = inside ? p.lse[place] * log2_of_e : 0.0F;
    delta[i] = inside ? p.delta[place] : 0.0F;
  }
}

/// Position of a score accumulator whose rows are keys and whose columns are queries.
struct TransposedScores {
  std::int64_t first_key;
  std::int64_t first_query;
  const FlashTile& tile;  ///< the keys' tile
};
/// Turns shaped scores into probabilities, which are zero if the query does not see the key; lse_log2 is by column.
template <bool Plain, int S>
__device__ __forceinline__ void to_probabilities(float (&scores)[S][4], const TransposedScores& at,
                                                 const FlashProblem& problem, const float* lse_log2) {
  const float scale_log2 = problem.shaped_scale<Plain>() * log2_of_e;
  MAESTRO_UNROLL
  for (int n = 0; n < S; ++n) {
    MAESTRO_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int column = column_of_lane(n) + i % 2;
      const std::int64_t key = at.first_key + row_of_lane(i / 2);
      const std::int64_t query = at.first_query + column;
      const bool hidden = query >= at.tile.stop || problem.hides<Plain>(at.tile, query, key);
      scores[n][i] = hidden ? 0.0F : exp2f(scores[n][i] * scale_log2 - lse_log2[column]);
    }
  }
}

/// Turns dout . v into the gradient of the score; delta is by column.
template <int S>
__device__ __forceinline__ void to_score_gradients(float (&products)[S][4], const float (&probabilities)[S][4],
                                                   const float* delta) {
  MAESTRO_UNROLL
  for (int n = 0; n < S; ++n) {
    MAESTRO_UNROLL
    for (int i = 0; i < 4; ++i) {
      products[n][i] = probabilities[n][i] * (products[n][i] - delta[column_of_lane(n) + i % 2]);
    }
  }
}

/// Grid: (tile numbers, G). Makes dk, dv or both: at the widest heads both do not fit into registers at once.
template <class T, int Width, bool Plain, bool Keys, bool Values>
__global__ void __launch_bounds__(FlashGeometry<T, Width>::threads) flash_dkv_kernel(FlashBackward<T> p) {
  using Geometry = FlashGeometry<T, Width>;
  constexpr int streamed = Geometry::streamed_backward;
  constexpr int stride = Geometry::stride;
  const FlashProblem& problem = p.problem;
  const FlashTile tile = problem.key_tile(Geometry::own_rows);
  if (tile.first == tile.end) return;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int heads_of_group = problem.heads / problem.kv_heads;
  const int columns = padded_columns(problem.head_size);
  constexpr int streamed_tile = streamed * stride;
  using Scores = float[streamed / mma_columns][4];
  MAESTRO_SHARED(float, lse_log2, Geometry::stages* streamed);
  MAESTRO_SHARED(float, delta, Geometry::stages* streamed);
  T* k = shared_memory<T>();
  T* v = k + Geometry::own_rows * stride;
  T* q = v + Geometry::own_rows * stride;
  T* dout = q + Geometry::stages * streamed_tile;
  T* strip = dout + Geometry::stages * streamed_tile + warp_index() * Geometry::template strip<streamed>;
  load_tile<T, Geometry::own_rows, stride>(k, problem.key(p.qkv, kv_head), tile.first, tile.end, problem.head_size);
  load_tile<T, Geometry::own_rows, stride>(v, problem.value(p.qkv, kv_head), tile.first, tile.end, problem.head_size);
  const std::int64_t first_key = tile.first + warp_index() * warp_rows;
  float dk[Keys ? Width / mma_columns : 2][4];
  float dv[Values ? Width / mma_columns : 2][4];
  set_zero(dk);
  set_zero(dv);
  const QueryTiles tiles = problem.query_tiles(tile);
  const FlashPlaces places =
      problem.query_places(tile, problem.first_query<Plain>(tile), problem.last_query<Plain>(tile));
  for (int head = kv_head * heads_of_group; head < (kv_head + 1) * heads_of_group; ++head) {
    const auto load = [&](std::int64_t place, int stage) {
      const std::int64_t query = tile.begin + tiles.row_at(place);
      load_tiles<T, streamed, stride>(q + stage * streamed_tile, problem.query(p.qkv, head),
                                      dout + stage * streamed_tile, problem.head_of_out(p.dout, head), query, tile.stop,
                                      problem.head_size);
      load_row_values<streamed>(lse_log2 + stage * streamed, delta + stage * streamed, p, head, query, tile.stop);
    };
    const auto compute = [&](std::int64_t place, int stage) {
      const std::int64_t query = tile.begin + tiles.row_at(place);
      const T* q_tile = q + stage * streamed_tile;
      const T* dout_tile = dout + stage * streamed_tile;
      Scores probabilities;  // transposed: keys along rows, queries along columns
      set_zero(probabilities);
      multiply_rows(probabilities, k + warp_index() * warp_rows * stride, q_tile, stride, columns);
      Scores slopes;
      shape_scores<Plain>(probabilities, slopes, problem);
      to_probabilities<Plain>(probabilities, {first_key, query, tile}, problem, lse_log2 + stage * streamed);
      if constexpr (Values) multiply_strip(dv, probabilities, dout_tile, stride, columns, strip);
      if constexpr (Keys) {
        Scores dscores;
        set_zero(dscores);
        multiply_rows(dscores, v + warp_index() * warp_rows * stride, dout_tile, stride, columns);
        to_score_gradients(dscores, probabilities, delta + stage * streamed);
        multiply_by_slopes<Plain>(dscores, slopes);
        multiply_strip(dk, dscores, q_tile, stride, columns, strip);
      }
    };
    stream_tiles<Geometry::stages>(places.first, places.end, streamed, load, compute);
  }
  if constexpr (Keys)
    store_rows(dk, {problem.scale, problem.scale}, problem.key(p.dqkv, kv_head), first_key, tile.end,
               problem.head_size);
  if constexpr (Values) store_rows(dv, {1, 1}, problem.value(p.dqkv, kv_head), first_key, tile.end, problem.head_size);
}

}  // namespace maestro::cuda
