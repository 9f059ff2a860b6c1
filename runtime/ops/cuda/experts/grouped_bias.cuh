// SPDX-License-Identifier: Apache-2.0
// Biases of groups of rows. Bodies for for_rows_kernel. For kernel sources.
#pragma once

#include "runtime/ops/cuda/element_access.cuh"

namespace maestro::cuda {

/// Rows in groups: group g has the rows [offsets[g], offsets[g + 1]).
struct GroupRows {
  const std::int32_t* offsets;  // (G + 1)
  int groups;

  /// Returns the group of a row.
  __device__ __forceinline__ int group_of(std::int64_t row) const {
    int first = 0, end = groups;
    while (end - first > 1) {
      const int middle = (first + end) / 2;
      (offsets[middle] <= row ? first : end) = middle;
    }
    return first;
  }
};

/// An item is a column.
template <class T>
struct BiasedRows {
  GroupRows rows;
  const float* bias;     // (G, N)
  const float* weights;  // (R), or null
  T* y;                  // (R, N)
  int columns;

  __device__ void operator()(std::int64_t row, int column) const {
    const float value = bias[std::int64_t{rows.group_of(row)} * columns + column];
    T* to = y + row * columns + column;
    *to = from_float<T>(to_float(*to) + (weights == nullptr ? value : weights[row] * value));
  }
};

/// A row is a group, an item a column.
template <class T>
struct BiasGradients {
  GroupRows rows;
  const T* dy;           // (R, N)
  const float* weights;  // (R), or null
  float* dbias;          // (G, N)
  int columns;

  __device__ void operator()(std::int64_t group, int column) const {
    float sum = 0;
    for (std::int64_t row = rows.offsets[group]; row < rows.offsets[group + 1]; ++row) {
      const float value = to_float(dy[row * columns + column]);
      sum += weights == nullptr ? value : weights[row] * value;
    }
    dbias[group * columns + column] += sum;
  }
};

/// The only item is the row's weight.
template <class T>
struct WeightGradients {
  GroupRows rows;
  const T* dy;        // (R, N)
  const float* bias;  // (G, N)
  float* dweights;    // (R)
  int columns;

  __device__ void operator()(std::int64_t row, int) const {
    const float* own = bias + std::int64_t{rows.group_of(row)} * columns;
    float sum = 0;
    for (int column = 0; column < columns; ++column) sum += to_float(dy[row * columns + column]) * own[column];
    dweights[row] += sum;
  }
};

}  // namespace maestro::cuda
