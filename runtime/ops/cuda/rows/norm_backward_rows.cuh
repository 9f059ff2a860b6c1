// SPDX-License-Identifier: Apache-2.0
// Gradients of layer norm and RMS norm. For kernel sources; geometry: norm_tiles(), norm_backward_blocks().
//
// With xhat = (x - mean) rstd and g = dy (offset + weight):
//   dx = rstd (g - sum(g) / C - xhat sum(g xhat) / C), dweight = sum over rows of dy xhat, dbias of dy;
// RMS norm has mean 0 and no sum(g) term. A thread has the same columns of all rows of its block, so that it adds up
// their dweight and dbias in registers, in the order of rows; each block leaves a row of sums.
#pragma once

#include "runtime/ops/cuda/rows/norm_rows.cuh"

namespace maestro::cuda {

template <class D, class X, class G>
struct NormBackwardCall {
  const D* dy;          // (M, C)
  const X* x;           // (M, C)
  G* dx;                // (M, C)
  D* rounded;           // (M, C), dx again, or null
  const float* weight;  // (C)
  const float* mean;    // (M), null for RMS norm
  const float* rstd;    // (M)
  float* dweight;       // (blocks, C) sums of each block, or null
  float* dbias;         // (blocks, C) sums of each block, or null
  std::int64_t rows;
  int columns;
  bool accumulate;
  float offset;  // added to the weights
};

/// A thread's values in all its columns.
using NormRegisters = float[norm_packs][norm_width];

/// Loads accesses First to First + Count of a thread's part of a row, with 0 past its end. No computation is between
/// the loads, so that all are in flight at once.
template <NormKind Kind, int First, int Count, class T>
__device__ __forceinline__ void load_part(const T* row, int columns, float (&to)[Count][norm_width]) {
  using Team = RowTeam<Kind>;
  MAESTRO_UNROLL
  for (int p = 0; p < Count; ++p) {
    const int column = (Team::member() + (First + p) * Team::members()) * norm_width;
    MAESTRO_UNROLL
    for (int i = 0; i < norm_width; ++i) to[p][i] = 0;
    if (column < columns) load_floats(row + column, to[p]);
  }
}

/// Writes the block's sums (row blockIdx.x of `to`) from its threads' sums.
template <NormKind Kind>
__device__ __forceinline__ void write_block_sums(const NormRegisters& sums, int columns, float* to) {
  using Team = RowTeam<Kind>;
  to += std::int64_t{blockIdx.x} * columns;
  if constexpr (Kind == NormKind::block) {
    MAESTRO_UNROLL
    for (int p = 0; p < norm_packs; ++p) {
      const int column = (Team::member() + p * Team::members()) * norm_width;
      if (column < columns) store_floats(to + column, sums[p]);
    }
  } else {
    // Warp after warp, so that the order is fixed.
    MAESTRO_SHARED(float, of_warps, warp_size* norm_packs* norm_width);
    for (int warp = 0; warp < warp_count(); ++warp) {
      __syncthreads();
      if (warp != warp_index()) continue;
      MAESTRO_UNROLL
      for (int p = 0; p < norm_packs; ++p) {
        MAESTRO_UNROLL
        for (int i = 0; i < norm_width; ++i) {
          float& sum = of_warps[(lane_index() + p * warp_size) * norm_width + i];
          sum = warp == 0 ? sums[p][i] : sum + sums[p][i];
        }
      }
    }
    __syncthreads();
    for (int column = static_cast<int>(threadIdx.x); column < columns; column += static_cast<int>(blockDim.x)) {
      to[column] = of_warps[column];
    }
  }
}

/// Writes dx for half of a thread's accesses, from First on: few registers are left for the previous values of dx.
template <NormKind Kind, int First, class D, class X, class G>
__device__ __forceinline__ void write_input_gradient(const NormBackwardCall<D, X, G>& call, std::int64_t start,
                                                     const NormRegisters& g, const NormRegisters& xhat, float shift,
                                                     float along, float rstd) {
  using Team = RowTeam<Kind>;
  float dx[norm_packs / 2][norm_width] = {};
  if (call.accumulate) load_part<Kind, First>(call.dx + start, call.columns, dx);
  MAESTRO_UNROLL
  for (int p = 0; p < norm_packs / 2; ++p) {
    const int column = (Team::member() + (First + p) * Team::members()) * norm_width;
    if (column >= call.columns) continue;
    MAESTRO_UNROLL
    for (int i = 0; i < norm_width; ++i) dx[p][i] += (g[First + p][i] - shift - xhat[First + p][i] * along) * rstd;
    store_floats(call.dx + start + column, dx[p]);
    if (call.rounded != nullptr) store_floats(call.rounded + start + column, dx[p]);
  }
}

/// Uses the threads per block and blocks per multiprocessor that norm_backward_blocks() assumes.
template <NormKind Kind>
inline constexpr int norm_backward_block_threads = warp_size*(Kind == NormKind::warp ? norm_rows_block
                                                                                     : norm_most_warps);
template <NormKind Kind>
inline constexpr int norm_backward_resident = Kind == NormKind::warp
                                                  ? norm_backward_threads / (warp_size * norm_rows_block)
                                                  : 1;

template <bool Centred, bool Parameters, NormKind Kind, class D, class X, class G>
__global__ void __launch_bounds__(norm_backward_block_threads<Kind>, norm_backward_resident<Kind>)
    norm_backward_kernel(NormBackwardCall<D, X, G> call) {
  using Team = RowTeam<Kind>;
  const float scale = 1.0F / static_cast<float>(call.columns);
  NormRegisters dweight = {};
  NormRegisters dbias = {};
  for (std::int64_t row = Team::first_row(); row < call.rows; row += Team::rows_at_once()) {
    const std::int64_t start = row * call.columns;
    const float mean = Centred ? call.mean[row] : 0.0F;
    const float rstd = call.rstd[row];
    NormRegisters g;
    NormRegisters xhat;
    load_part<Kind, 0>(call.dy + start, call.columns, g);
    load_part<Kind, 0>(call.x + start, call.columns, xhat);
    float along = 0;
    float shift = 0;
    MAESTRO_UNROLL
    for (int p = 0; p < norm_packs; ++p) {
      const int column = (Team::member() + p * Team::members()) * norm_width;
      float weight[norm_width] = {};
      if (column < call.columns)
        load_floats(call.weight + column, weight);  // past the end g is 0, and so is all that it adds
      MAESTRO_UNROLL
      for (int i = 0; i < norm_width; ++i) {
        xhat[p][i] = (xhat[p][i] - mean) * rstd;
        if constexpr (Parameters) dweight[p][i] += g[p][i] * xhat[p][i];
        if constexpr (Parameters && Centred) dbias[p][i] += g[p][i];
        g[p][i] *= weight[i] + call.offset;
        along += g[p][i] * xhat[p][i];
        shift += g[p][i];
      }
    }
    along = scale * Team::sum(along);
    shift = Centred ? scale * Team::sum(shift) : 0.0F;
    write_input_gradient<Kind, 0>(call, start, g, xhat, shift, along, rstd);
    write_input_gradient<Kind, norm_packs / 2>(call, start, g, xhat, shift, along, rstd);
  }
  if constexpr (Parameters) write_block_sums<Kind>(dweight, call.columns, call.dweight);
  if constexpr (Parameters && Centred) write_block_sums<Kind>(dbias, call.columns, call.dbias);
}

/// Computes the same for rows that do not fit. The block's sums are in memory; each thread adds only to its columns.
template <bool Centred, bool Parameters, class D, class X, class G>
__global__ void __launch_bounds__(warp_size* norm_most_warps)
    norm_backward_wide_kernel(NormBackwardCall<D, X, G> call) {
  const auto first = static_cast<int>(threadIdx.x);
  const auto step = static_cast<int>(blockDim.x);
  const float scale = 1.0F / static_cast<float>(call.columns);
  float* dweight = Parameters ? call.dweight + std::int64_t{blockIdx.x} * call.columns : nullptr;
  float* dbias = Parameters && Centred ? call.dbias + std::int64_t{blockIdx.x} * call.columns : nullptr;
  for (std::int64_t row = blockIdx.x; row < call.rows; row += gridDim.x) {
    const std::int64_t start = row * call.columns;
    const float mean = Centred ? call.mean[row] : 0.0F;
    const float rstd = call.rstd[row];
    const bool begin = row == blockIdx.x;
    float along = 0;
    float shift = 0;
    for (int column = first; column < call.columns; column += step) {
      const float dy = to_float(call.dy[start + column]);
      const float xhat = (to_float(call.x[start + column]) - mean) * rstd;
      if constexpr (Parameters) dweight[column] = (begin ? 0.0F : dweight[column]) + dy * xhat;
      if constexpr (Parameters && Centred) dbias[column] = (begin ? 0.0F : dbias[column]) + dy;
      const float g = dy * (call.weight[column] + call.offset);
      along += g * xhat;
      shift += g;
    }
    along = scale * block_sum(along);
    shift = Centred ? scale * block_sum(shift) : 0.0F;
    for (int column = first; column < call.columns; column += step) {
      const float g = to_float(call.dy[start + column]) * (call.weight[column] + call.offset);
      const float xhat = (to_float(call.x[start + column]) - mean) * rstd;
      const float before = call.accumulate ? to_float(call.dx[start + column]) : 0.0F;
      const float dx = (g - shift - xhat * along) * rstd + before;
      call.dx[start + column] = from_float<G>(dx);
      if (call.rounded != nullptr) call.rounded[start + column] = from_float<D>(dx);
    }
  }
}

}  // namespace maestro::cuda
