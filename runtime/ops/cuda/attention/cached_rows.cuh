// SPDX-License-Identifier: Apache-2.0
// Kernels of attention over a cache (cached_attention.hpp). For kernel sources.
#pragma once

#include "runtime/ops/cuda/rows/pointwise.cuh"
#include "runtime/ops/operators.hpp"

namespace maestro::cuda {

/// Body for for_rows_kernel: copies the keys, then the values, of a row of qkv; an item is flat_width columns.
template <class T>
struct CachedRows {
  const T* from;  // the keys of the first row
  T* keys;        // (P, columns)
  T* values;
  std::int64_t stride;
  std::int64_t columns;
  std::int64_t first;               // the cache's row of the first row; unused with sequences
  const CachedSequence* sequences;  // (N), or null

  __device__ void operator()(std::int64_t row, int item) const {
    const std::int64_t column = std::int64_t{item} * flat_width;
    const std::int64_t place = sequences == nullptr ? first + row : sequences[row].begin + sequences[row].rows;
    T* to = column < columns ? keys + place * columns + column : values + (place - 1) * columns + column;
    float pack[flat_width];
    load_floats(from + row * stride + column, pack);
    store_floats(to, pack);
  }
};

template <class T>
struct CachedCall {
  const T* qkv;     // (N, (H + 2G) D)
  const T* keys;    // (P, G D)
  const T* values;  // (P, G D)
  T* out;           // (N, H D)
  std::int64_t first;
  std::int64_t window;              // 0: all
  const std::int32_t* ends;         // (N) end of the keys that a row sees; null: its own row is the last
  const CachedSequence* sequences;  // (N), or null
  const float* sinks;               // (H), or null
  int heads;
  int kv_heads;
  int head_size;
  int lanes;  // lanes that share a key, a power of two; each has flat_width columns
  float scale;
  float softcap;  // 0: none
};

inline constexpr int cached_threads = 256;
inline constexpr int cached_most_slots = cached_threads / 2;  ///< keys at a time, for heads of 16 columns

/// A lane's softmax over a part of the keys, and its columns of the values' sum, weighted by the softmax numerators.
struct CachedSums {
  float top = -INFINITY;
  float sum = 0;
  float acc[flat_width] = {};

  __device__ __forceinline__ void add(float score, const float (&value)[flat_width]) {
    const float most = element::larger(top, score);
    const float shrink = element::exponential(top - most);
    const float part = element::exponential(score - most);
    top = most;
    sum = sum * shrink + part;
    MAESTRO_UNROLL
    for (int i = 0; i < flat_width; ++i) acc[i] = acc[i] * shrink + part * value[i];
  }
};

/// Grid: (N, H). Keys are dealt in turn to slots of `lanes` lanes; the slots' sums are added in slot order.
template <class T>
__global__ void __launch_bounds__(cached_threads) cached_attention_kernel(CachedCall<T> call) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int slot = thread / call.lanes;
  const int slots = cached_threads / call.lanes;
  const int column = thread % call.lanes * flat_width;
  const bool has_columns = column < call.head_size;
  const std::int64_t row = blockIdx.x;
  const CachedSequence* sequence = call.sequences == nullptr ? nullptr : call.sequences + row;
  const std::int64_t own_key = sequence == nullptr ? call.first + row : sequence->rows;
  const std::int64_t begin = sequence == nullptr ? 0 : sequence->begin;
  const std::int64_t lowest = call.window > 0 && own_key >= call.window ? own_key - call.window + 1 : 0;
  const std::int64_t last = call.ends == nullptr ? own_key : call.ends[row] - 1;
  const std::int64_t kv_stride = std::int64_t{call.kv_heads} * call.head_size;
  const std::int64_t q_stride = std::int64_t{call.heads} * call.head_size + 2 * kv_stride;
  const auto head = static_cast<int>(blockIdx.y);
  const int kv_column = head / (call.heads / call.kv_heads) * call.head_size + column;
  float q[flat_width] = {};
  if (has_columns) load_floats(call.qkv + row * q_stride + head * call.head_size + column, q);

  CachedSums own;
  for (std::int64_t first = lowest; first <= last; first += slots) {
    const std::int64_t key = first + slot;
    float k[flat_width] = {};
    float value[flat_width] = {};
    if (key <= last && has_columns) {
      load_floats(call.keys + (begin + key) * kv_stride + kv_column, k);
      load_floats(call.values + (begin + key) * kv_stride + kv_column, value);
    }
    float score = 0;
    MAESTRO_UNROLL
    for (int i = 0; i < flat_width; ++i) score += q[i] * k[i];
    score = warp_sum(score, call.lanes) * call.scale;
    if (call.softcap > 0) score = element::Softcap::value(score, call.softcap);
    if (key <= last) own.add(score, value);
  }

  MAESTRO_SHARED(float, tops, cached_most_slots);
  MAESTRO_SHARED(float, sums, cached_most_slots);
  MAESTRO_SHARED(float, accs, cached_threads* flat_width);
  if (column == 0) tops[slot] = own.top;
  if (column == 0) sums[slot] = own.sum;
  MAESTRO_UNROLL
  for (int i = 0; i < flat_width; ++i) accs[thread * flat_width + i] = own.acc[i];
  __syncthreads();
  if (thread >= call.head_size) return;
  float top = -INFINITY;
  for (int i = 0; i < slots; ++i) top = element::larger(top, tops[i]);
  float sum = 0;
  float acc = 0;
  for (int i = 0; i < slots; ++i) {
    const float factor = element::exponential(tops[i] - top);
    sum += factor * sums[i];
    acc += factor * accs[i * call.lanes * flat_width + thread];
  }
  if (call.sinks != nullptr) sum += element::exponential(call.sinks[head] - top);
  call.out[(row * call.heads + head) * call.head_size + thread] = from_float<T>(acc / sum);
}

}  // namespace maestro::cuda
