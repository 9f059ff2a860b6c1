// SPDX-License-Identifier: Apache-2.0
// RMS norms of query and key columns; formulas: HeadNorm, HeadNormBackward (operators.hpp). A warp has a row's column
// group, and another warp the row's values. For kernel sources.
#pragma once

#include "runtime/ops/cuda/element_access.cuh"
#include "runtime/ops/operators.hpp"

namespace maestro::cuda {

/// Columns of a row of qkv that are normed together, or the values.
struct HeadGroup {
  int first;  ///< column of qkv
  int columns;
  float scale;          ///< 1 / n
  const float* weight;  ///< (columns); null: the values
};
/// The groups of a row: q's groups, k's groups, then the values.
struct HeadGroups {
  int of_query;
  int count;  ///< S, groups in q and k
  HeadGroup query;
  HeadGroup key;
  HeadGroup values;
  int stride;  ///< columns of qkv
  float epsilon;
  float offset;

  [[nodiscard]] __device__ HeadGroup group(int number) const {
    if (number >= count) return values;
    const bool is_query = number < of_query;
    HeadGroup found = is_query ? query : key;
    found.first += (is_query ? number : number - of_query) * found.columns;
    return found;
  }
  [[nodiscard]] __device__ float factor(const HeadGroup& of, float sum) const {
    return 1.0F / sqrtf(sum * of.scale + epsilon);
  }
};

template <class T>
struct HeadNormCall {
  HeadGroups groups;
  HeadNormPhase phase;
  std::int64_t rows;
  const T* dy;  // backward pass only
  const T* x;
  T* to;               // y or dx
  float* sums;         // (rows, S)
  float* dots;         // (rows, S), backward pass only
  bool writes;         // whether `to` is written
  int groups_at_once;  // S, and the values if `writes`
};

inline constexpr int head_norm_threads = 256;

/// Calls body(column) for this lane's columns of a group, V at a time.
template <int V, class Body>
__device__ __forceinline__ void for_lane_columns(const HeadGroup& group, Body body) {
  for (int column = lane_index() * V; column < group.columns; column += warp_size * V) body(column);
}

/// Returns the group's number *kept; computes it with `sum` over each pack of columns unless the phase takes it as is.
template <int V, class Sum>
__device__ __forceinline__ float group_sum(const HeadGroup& group, HeadNormPhase phase, float* kept, Sum sum) {
  if (phase == HeadNormPhase::values) return *kept;
  float total = 0;
  for_lane_columns<V>(group, [&](int column) { total += sum(column); });
  total = warp_sum(total);
  if (lane_index() == 0) *kept = total;
  return total;
}

template <bool Backward, int V, class T>
__global__ void __launch_bounds__(head_norm_threads) head_norm_kernel(HeadNormCall<T> call) {
  const std::int64_t number = std::int64_t{blockIdx.x} * warp_count() + warp_index();
  const std::int64_t row = number / call.groups_at_once;
  if (row >= call.rows) return;
  const auto group_number = static_cast<int>(number - row * call.groups_at_once);
  const HeadGroup group = call.groups.group(group_number);
  const std::int64_t start = row * call.groups.stride + group.first;
  const T* from = (Backward ? call.dy : call.x) + start;
  if (group.weight == nullptr) {
    for_lane_columns<V>(group, [&](int column) {
      float value[V];
      load_floats(from + column, value);
      store_floats(call.to + start + column, value);
    });
    return;
  }
  const T* x = call.x + start;
  const float offset = call.groups.offset;
  float v[V];
  float g[V];  // with Backward: dy (offset + weight)
  const auto load = [&](int column) {
    load_floats(x + column, v);
    load_floats(group.weight + column, g);
    float d[V];
    if constexpr (Backward) load_floats(from + column, d);
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) g[i] = (g[i] + offset) * (Backward ? d[i] : v[i]);
  };
  const std::int64_t kept = row * call.groups.count + group_number;
  const float total = group_sum<V>(group, call.phase, (Backward ? call.dots : call.sums) + kept, [&](int column) {
    load(column);
    float sum = 0;
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) sum += (Backward ? g[i] : v[i]) * v[i];
    return sum;
  });
  if (!call.writes) return;
  const float r = call.groups.factor(group, Backward ? call.sums[kept] : total);
  const float along = Backward ? total * group.scale * r * r * r : 0.0F;
  for_lane_columns<V>(group, [&](int column) {
    load(column);
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) g[i] = r * g[i] - along * v[i];
    store_floats(call.to + start + column, g);
  });
}

/// dy x r for a column of q's or k's groups: a source of columns (ColumnSumCall); row i is group i % groups in row
/// i / groups of qkv.
template <class T>
struct HeadNormProducts {
  const T* dy;
  const T* x;
  const float* sums;  // (rows, S)
  HeadGroups all;
  HeadGroup first;   // first of the groups
  int groups;        // groups per row
  int first_number;  // number of the first group among the S

  template <int V>
  __device__ __forceinline__ void load(std::int64_t index, int column, float (&to)[V]) const {
    const auto row = static_cast<std::int64_t>(static_cast<unsigned>(index) / static_cast<unsigned>(groups));
    const auto number = static_cast<int>(index - row * groups);
    const std::int64_t start = row * all.stride + first.first + number * first.columns + column;
    const float r = all.factor(first, sums[row * all.count + first_number + number]);
    float d[V];
    load_floats(x + start, to);
    load_floats(dy + start, d);
    MAESTRO_UNROLL
    for (int i = 0; i < V; ++i) to[i] *= d[i] * r;
  }
};

}  // namespace maestro::cuda
