// SPDX-License-Identifier: Apache-2.0
// The k largest of each row, by radix selection (Alabi et al. 2012). For kernel sources.
//
// Each element has a key of 64 bits, unique in its row: the order of its value above the order of its index, lower
// indices higher. Digit by digit from the top, a histogram shows which digit the k-th largest key has, until exactly
// the wanted number of keys is left; the keys at or above it are sorted. The order of threads does not affect the
// result.
#pragma once

#include "runtime/ops/cuda/element_access.cuh"

namespace maestro::cuda {

inline constexpr int select_bits = 8;
inline constexpr int select_digits = 1 << select_bits;
inline constexpr int most_k = 256;
inline constexpr int select_warps = 32;
inline constexpr int select_threads = select_warps * warp_size;
using RankKey = unsigned long long;
inline constexpr int rank_bits = 64;

/// Returns the key of a value: NaN above all numbers, -0 equal to +0.
__device__ __forceinline__ RankKey rank_key(float value, int index) {
  const unsigned bits = __float_as_uint(value == 0 ? 0.0F : value);
  unsigned order = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  if (value != value) order = 0xffffffffU;
  return (static_cast<RankKey>(order) << 32) | (0xffffffffU - static_cast<unsigned>(index));
}
__device__ __forceinline__ int index_of(RankKey key) {
  return static_cast<int>(0xffffffffU - static_cast<unsigned>(key));
}

template <class T>
struct TopKCall {
  const T* logits;        // (M, stride)
  float* values;          // (M, k)
  std::int32_t* indices;  // (M, k)
  std::int64_t stride;
  int columns;  // columns of a row that are examined, from its first
  int k;
};

/// The choice at a digit position, in shared memory.
struct DigitChoice {
  int digit;
  int above;  // keys with a larger digit
  int count;  // keys with this digit
};

/// Returns the smallest of the k largest keys. Called by all threads of the block.
template <class T>
__device__ RankKey kth_key(const T* row, const TopKCall<T>& call, int* of_warps) {
  MAESTRO_SHARED(int, totals, select_digits);
  MAESTRO_SHARED(DigitChoice, choice, 1);
  const auto thread = static_cast<int>(threadIdx.x);
  int* own = of_warps + warp_index() * select_digits;
  RankKey prefix = 0;
  int wanted = call.k;
  for (int shift = rank_bits - select_bits; shift >= 0; shift -= select_bits) {
    for (int i = thread; i < select_warps * select_digits; i += select_threads) of_warps[i] = 0;
    __syncthreads();
    const int above_shift = shift + select_bits;
    for (int i = thread; i < call.columns; i += select_threads) {
      const RankKey key = rank_key(to_float(row[i]), i);
      const bool candidate = above_shift == rank_bits || (key >> above_shift) == (prefix >> above_shift);
      if (candidate) atomicAdd(own + static_cast<int>(key >> shift & (select_digits - 1)), 1);
    }
    __syncthreads();
    if (thread < select_digits) {
      int total = 0;
      for (int warp = 0; warp < select_warps; ++warp) total += of_warps[warp * select_digits + thread];
      totals[thread] = total;
    }
    __syncthreads();
    if (thread < select_digits) {
      int above = 0;
      for (int digit = thread + 1; digit < select_digits; ++digit) above += totals[digit];
      if (above < wanted && above + totals[thread] >= wanted) *choice = {thread, above, totals[thread]};
    }
    __syncthreads();
    const DigitChoice chosen = *choice;
    prefix |= static_cast<RankKey>(chosen.digit) << shift;
    wanted -= chosen.above;
    if (chosen.count == wanted) break;  // exactly the keys that are left
  }
  return prefix;
}

/// Sorts most_k keys in shared memory, largest first (Batcher 1968).
__device__ inline void sort_keys(RankKey* keys) {
  const auto thread = static_cast<int>(threadIdx.x);
  for (int size = 2; size <= most_k; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      const int other = thread ^ step;
      if (thread < most_k && other > thread) {
        const bool largest_first = (thread & size) == 0;
        if ((keys[thread] < keys[other]) == largest_first) {
          const RankKey key = keys[thread];
          keys[thread] = keys[other];
          keys[other] = key;
        }
      }
      __syncthreads();
    }
  }
}

template <class T>
__global__ void __launch_bounds__(select_threads) top_k_kernel(TopKCall<T> call) {
  MAESTRO_SHARED(int, of_warps, select_warps* select_digits);
  MAESTRO_SHARED(RankKey, found, most_k);
  MAESTRO_SHARED(int, count, 1);
  const auto thread = static_cast<int>(threadIdx.x);
  const T* row = call.logits + std::int64_t{blockIdx.x} * call.stride;
  const RankKey least = kth_key(row, call, of_warps);
  if (thread < most_k) found[thread] = 0;
  if (thread == 0) *count = 0;
  __syncthreads();
  for (int i = thread; i < call.columns; i += select_threads) {
    const RankKey key = rank_key(to_float(row[i]), i);
    if (key >= least) found[atomicAdd(count, 1)] = key;
  }
  __syncthreads();
  sort_keys(found);
  if (thread >= call.k) return;
  const int index = index_of(found[thread]);
  const std::int64_t to = std::int64_t{blockIdx.x} * call.k + thread;
  call.values[to] = to_float(row[index]);
  call.indices[to] = index;
}

}  // namespace maestro::cuda
