// SPDX-License-Identifier: Apache-2.0
// Sums over rows. For kernel sources; geometry: column_tiles().
#pragma once

#include "runtime/ops/cuda/element_access.cuh"

namespace maestro::cuda {

/// Adjacent rows of a matrix; a source of columns to sum.
template <class T>
struct MatrixRows {
  const T* values;  // (rows, columns)
  int columns;

  template <int V>
  __device__ __forceinline__ void load(std::int64_t row, int column, float (&to)[V]) const {
    load_floats(values + row * columns + column, to);
  }
};

template <class Source>
struct ColumnSumCall {
  Source source;
  float* to;  // (gridDim.y, columns); or (columns), added to, if `add`
  std::int64_t rows;
  std::int64_t rows_per_block;
  int columns;
  bool add;
};

/// Sums columns. A lane has V columns, a warp every column_warps-th row of the block's rows; warps are added in order.
template <int V, class Source>
__global__ void __launch_bounds__(column_lanes* column_warps) column_sum_kernel(ColumnSumCall<Source> call) {
  MAESTRO_SHARED(float, of_warps, column_warps* column_lanes* V);
  const int lane = lane_index();
  const int warp = warp_index();
  const int column = (static_cast<int>(blockIdx.x) * column_lanes + lane) * V;
  const std::int64_t begin = blockIdx.y * call.rows_per_block;
  const std::int64_t end = begin + call.rows_per_block < call.rows ? begin + call.rows_per_block : call.rows;
  float sum[V] = {};
  if (column < call.columns) {
    MAESTRO_UNROLL_4
    for (std::int64_t row = begin + warp; row < end; row += column_warps) {
      float value[V];
      call.source.load(row, column, value);
      MAESTRO_UNROLL
      for (int i = 0; i < V; ++i) sum[i] += value[i];
    }
  }
  MAESTRO_UNROLL
  for (int i = 0; i < V; ++i) of_warps[(warp * column_lanes + lane) * V + i] = sum[i];
  __syncthreads();
  if (warp != 0 || column >= call.columns) return;
  for (int i = 0; i < V; ++i) {
    float total = 0;
    for (int w = 0; w < column_warps; ++w) total += of_warps[(w * column_lanes + lane) * V + i];
    float& to = call.to[std::int64_t{blockIdx.y} * call.columns + column + i];
    to = call.add ? to + total : total;
  }
}

}  // namespace maestro::cuda
