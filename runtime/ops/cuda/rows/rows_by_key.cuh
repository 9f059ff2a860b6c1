// SPDX-License-Identifier: Apache-2.0
// A stable sort of rows by key, and sums of rows with equal keys. For kernel sources.
//
// Least significant digit first: in each pass a tile counts its keys by digit, a scan over (digit, tile) yields the
// start of each tile's keys per digit, and each key's rank among equal digits before it in its tile yields its place.
// No atomics: rows keep their order.
#pragma once

#include "runtime/ops/cuda/element_access.cuh"

namespace maestro::cuda {

inline constexpr int digit_bits = 8;
inline constexpr int digits = 1 << digit_bits;
inline constexpr int sort_tile = 256;  ///< keys per block, and digits: a thread serves one of each
inline constexpr int scan_threads = 1024;
static_assert(sort_tile == digits);

/// A row and its key; rows without a key have the largest key.
struct KeyedRow {
  std::uint32_t key;
  std::int32_t row;
};

/// rows[i] = {keys[i], i}
struct KeyedRowsMade {
  const std::int32_t* keys;
  KeyedRow* rows;
  std::uint32_t without;  // key of rows without a key

  __device__ void operator()(std::int64_t row, int) const {
    rows[row] = {keys[row] < 0 ? without : static_cast<std::uint32_t>(keys[row]), static_cast<std::int32_t>(row)};
  }
};

__device__ __forceinline__ int digit_of(std::uint32_t key, int shift) {
  return static_cast<int>(key >> shift) & (digits - 1);
}

/// counts[digit * gridDim.x + tile]
__global__ void __launch_bounds__(sort_tile)
    digit_count_kernel(const KeyedRow* rows, int count, int shift, int* counts) {
  MAESTRO_SHARED(int, of_tile, sort_tile);
  const auto thread = static_cast<int>(threadIdx.x);
  const int at = static_cast<int>(blockIdx.x) * sort_tile + thread;
  of_tile[thread] = at < count ? digit_of(rows[at].key, shift) : digits;
  __syncthreads();
  int equal = 0;
  for (int i = 0; i < sort_tile; ++i) equal += of_tile[i] == thread ? 1 : 0;
  counts[thread * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)] = equal;
}

/// Runs in a single block: replaces each value with the sum of the values before it.
__global__ void __launch_bounds__(scan_threads) scan_kernel(int* values, int count) {
  MAESTRO_SHARED(int, of_warps, most_warps);
  const auto thread = static_cast<int>(threadIdx.x);
  const int share = (count + scan_threads - 1) / scan_threads;
  const int begin = thread * share < count ? thread * share : count;
  const int end = begin + share < count ? begin + share : count;
  int sum = 0;
  for (int i = begin; i < end; ++i) sum += values[i];
  int before = sum;  // of this thread and the lanes below it
  for (int step = 1; step < warp_size; step *= 2) {
    const int below = __shfl_up_sync(all_lanes, before, static_cast<unsigned>(step));
    if (lane_index() >= step) before += below;
  }
  if (lane_index() == warp_size - 1) of_warps[warp_index()] = before;
  __syncthreads();
  before -= sum;
  for (int warp = 0; warp < warp_index(); ++warp) before += of_warps[warp];
  for (int i = begin; i < end; ++i) {
    const int value = values[i];
    values[i] = before;
    before += value;
  }
}

__global__ void __launch_bounds__(sort_tile)
    digit_move_kernel(const KeyedRow* rows, int count, int shift, const int* offsets, KeyedRow* to) {
  MAESTRO_SHARED(int, of_tile, sort_tile);
  const auto thread = static_cast<int>(threadIdx.x);
  const int at = static_cast<int>(blockIdx.x) * sort_tile + thread;
  KeyedRow own{};
  if (at < count) own = rows[at];
  const int digit = at < count ? digit_of(own.key, shift) : digits;
  of_tile[thread] = digit;
  __syncthreads();
  if (at >= count) return;
  int rank = 0;
  for (int i = 0; i < thread; ++i) rank += of_tile[i] == digit ? 1 : 0;
  to[offsets[digit * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)] + rank] = own;
}

// ---- sums of runs: sorted rows with equal keys. A block adds up a chunk of rows; a run that crosses a chunk's edge
// leaves a partial sum in each chunk, and the block of its first chunk adds these up afterwards ----

inline constexpr int run_chunk = 32;
inline constexpr int run_threads = 128;

template <class From, class To>
struct RunCall {
  const KeyedRow* rows;  // sorted
  const From* values;    // (M, C)
  To* to;                // (keys, C)
  float* heads;          // (chunks, C): sums of a run that began in an earlier chunk
  float* tails;          // (chunks, C): sums of a run that begins here and continues
  int count;
  int columns;
  std::uint32_t without;
  float scale;  // factor of the sums

  __device__ bool continues(int at) const { return at > 0 && at < count && rows[at].key == rows[at - 1].key; }
};

template <int V, class To>
__device__ __forceinline__ void add_floats(To* to, const float (&values)[V], float scale) {
  float sum[V];
  load_floats(to, sum);
  MAESTRO_UNROLL
  for (int i = 0; i < V; ++i) sum[i] += scale * values[i];
  store_floats(to, sum);
}

template <int V, class From, class To>
__global__ void __launch_bounds__(run_threads) run_sum_kernel(RunCall<From, To> call) {
  const auto chunk = static_cast<int>(blockIdx.x);
  const int column = (static_cast<int>(blockIdx.y) * run_threads + static_cast<int>(threadIdx.x)) * V;
  if (column >= call.columns) return;
  const int begin = chunk * run_chunk;
  const int end = begin + run_chunk < call.count ? begin + run_chunk : call.count;
  const std::int64_t partial = std::int64_t{chunk} * call.columns + column;
  bool begins_here = !call.continues(begin);
  float sum[V] = {};
  for (int at = begin; at < end; ++at) {
    const KeyedRow row = call.rows[at];
    if (row.key == call.without) return;  // they come last
    float value[V];
    load_floats(call.values + std::int64_t{row.row} * call.columns + column, value);
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) sum[i] += value[i];
    const bool goes_on = call.continues(at + 1);
    if (goes_on && at + 1 < end) continue;
    if (!begins_here) {
      store_floats(call.heads + partial, sum);
    } else if (goes_on) {
      store_floats(call.tails + partial, sum);
    } else {
      add_floats(call.to + std::int64_t{row.key} * call.columns + column, sum, call.scale);
    }
    begins_here = true;
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) sum[i] = 0;
  }
}

template <int V, class From, class To>
__global__ void __launch_bounds__(run_threads) long_run_kernel(RunCall<From, To> call) {
  const int column = (static_cast<int>(blockIdx.y) * run_threads + static_cast<int>(threadIdx.x)) * V;
  const int begin = static_cast<int>(blockIdx.x) * run_chunk;
  int end = begin + run_chunk;
  if (column >= call.columns || !call.continues(end)) return;
  const std::uint32_t key = call.rows[end].key;
  const bool began_before = begin > 0 && call.rows[begin - 1].key == key;
  if (began_before || key == call.without) return;
  float sum[V];
  load_floats(call.tails + std::int64_t{blockIdx.x} * call.columns + column, sum);
  for (int chunk = static_cast<int>(blockIdx.x) + 1; end < call.count && call.rows[end].key == key; ++chunk) {
    float part[V];
    load_floats(call.heads + std::int64_t{chunk} * call.columns + column, part);
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) sum[i] += part[i];
    end += run_chunk;
  }
  add_floats(call.to + std::int64_t{key} * call.columns + column, sum, call.scale);
}

}  // namespace maestro::cuda
