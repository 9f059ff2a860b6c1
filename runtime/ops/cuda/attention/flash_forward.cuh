// SPDX-License-Identifier: Apache-2.0
// Attention forward (FlashAttention-2, Dao 2023, algorithm 1); see flash_attention.hpp.
#pragma once

#include <cmath>

#include "runtime/ops/cuda/attention/flash_tiles.cuh"

namespace maestro::cuda {

/// The running softmax of the two rows that a lane shares with its quad: over the scores so far, top is their largest
/// and sum the sum of exp(score - top), of this lane's columns only until finish().
struct OnlineSoftmax {
  float top[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};

  /// Turns raw scores into exp(scale (score - top)) and scales `acc` to the new top. With `Plain` each row has had a
  /// score above -infinity after the first call.
  template <bool Plain, int S, int N>
  __device__ __forceinline__ void take(float (&scores)[S][4], float (&acc)[N][4], float scale_log2) {
    MAESTRO_UNROLL
    for (int half = 0; half < 2; ++half) {
      float most = top[half];
      MAESTRO_UNROLL
      for (int n = 0; n < S; ++n) most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      most = warp_max(most, quad_lanes);
      const float base = !Plain && most == -INFINITY ? 0.0F : most;
      const float shrink = exp2f((top[half] - base) * scale_log2);
      top[half] = most;
      sum[half] *= shrink;
      MAESTRO_UNROLL
      for (int n = 0; n < N; ++n) {
        acc[n][2 * half] *= shrink;
        acc[n][2 * half + 1] *= shrink;
      }
      MAESTRO_UNROLL
      for (int n = 0; n < S; ++n) {
        MAESTRO_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[n][i] = exp2f((scores[n][i] - base) * scale_log2);
          sum[half] += scores[n][i];
        }
      }
    }
  }
  __device__ __forceinline__ void finish() {
    for (float& value : sum) value = warp_sum(value, quad_lanes);
  }
};

/// Sets to minus infinity the scores of keys at or beyond the end of the tile's sequence and, with a causal mask, of
/// keys that the query's row does not see.
template <bool Plain, int S>
__device__ __forceinline__ void hide_keys(float (&scores)[S][4], std::int64_t first_query, std::int64_t first_key,
                                          const FlashTile& tile, const FlashProblem& problem) {
  const std::int64_t last_key = first_key + S * mma_columns - 1;
  const bool in_windows = Plain || first_query + warp_rows - 1 - first_key < problem.window;
  // Every query of the warp sees every key.
  if (last_key < tile.stop && (!problem.causal || (last_key <= first_query && in_windows))) return;
  MAESTRO_UNROLL
  for (int n = 0; n < S; ++n) {
    MAESTRO_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::int64_t query = first_query + row_of_lane(i / 2);
      const std::int64_t key = first_key + column_of_lane(n) + i % 2;
      if (key >= tile.stop || problem.hides<Plain>(tile, query, key)) scores[n][i] = -INFINITY;
    }
  }
}

/// Turns raw scores into scaled scores with their soft cap.
template <int S>
__device__ __forceinline__ void shape_scores(float (&scores)[S][4], const FlashProblem& problem) {
  MAESTRO_UNROLL
  for (int n = 0; n < S; ++n) {
    for (int i = 0; i < 4; ++i) scores[n][i] *= problem.scale;
  }
  if (problem.softcap == 0) return;
  MAESTRO_UNROLL
  for (int n = 0; n < S; ++n) {
    for (int i = 0; i < 4; ++i) scores[n][i] = element::Softcap::value(scores[n][i], problem.softcap);
  }
}

template <class T>
struct FlashForward {
  FlashProblem problem;
  const T* qkv;
  T* out;
  float* lse;
};

/// Grid: (tile numbers, H).
template <class T, int Width, bool Plain>
__global__ void __launch_bounds__(FlashGeometry<T, Width>::threads) flash_forward_kernel(FlashForward<T> p) {
  using Geometry = FlashGeometry<T, Width>;
  constexpr int streamed = Geometry::streamed_forward;
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
  T* k = q + Geometry::own_rows * stride;
  T* v = k + Geometry::stages * streamed_tile;
  T* strip = v + Geometry::stages * streamed_tile + warp_index() * Geometry::template strip<streamed>;
  load_tile<T, Geometry::own_rows, stride>(q, problem.query(p.qkv, head), tile.first, tile.end, problem.head_size);

  const std::int64_t first_query = tile.first + warp_index() * warp_rows;
  const float scale = problem.shaped_scale<Plain>();
  OnlineSoftmax softmax;
  float acc[Width / mma_columns][4];
  set_zero(acc);
  const auto load = [&](std::int64_t key, int stage) {
    load_tiles<T, streamed, stride>(k + stage * streamed_tile, problem.key(p.qkv, kv_head), v + stage * streamed_tile,
                                    problem.value(p.qkv, kv_head), key, tile.stop, problem.head_size);
  };
  const auto compute = [&](std::int64_t key, int stage) {
    Scores scores;
    set_zero(scores);
    multiply_rows(scores, q + warp_index() * warp_rows * stride, k + stage * streamed_tile, stride, columns);
    if constexpr (!Plain) shape_scores(scores, problem);
    hide_keys<Plain>(scores, first_query, key, tile, problem);
    softmax.take<Plain>(scores, acc, scale * log2_of_e);
    multiply_strip(acc, scores, v + stage * streamed_tile, stride, columns, strip);
  };
  stream_tiles<Geometry::stages>(problem.first_key<Plain>(tile), problem.end_of_keys<Plain>(tile), streamed, load,
                                 compute);
  softmax.finish();
  const float factor[2] = {1.0F / softmax.sum[0], 1.0F / softmax.sum[1]};
  store_rows(acc, factor, problem.head_of_out(p.out, head), first_query, tile.end, problem.head_size);
  if (lane_index() % quad_lanes != 0) return;
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = first_query + row_of_lane(half);
    if (row < tile.end) p.lse[row * problem.heads + head] = softmax.top[half] * scale + logf(softmax.sum[half]);
  }
}

}  // namespace maestro::cuda
