// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm over rows. For kernel sources; geometry: norm_tiles().
#pragma once

#include "runtime/ops/cuda/rows/row_team.cuh"

namespace maestro::cuda {

/// x, y: (M, C); added, sum: (M, C) or null (both); bias, mean: null for RMS norm.
template <class X, class B, class Y>
struct NormCall {
  const X* x;
  const B* added;
  float* sum;
  const float* weight;  // (C)
  const float* bias;    // (C)
  Y* y;
  float* mean;  // (M)
  float* rstd;  // (M)
  std::int64_t rows;
  int columns;
  float epsilon;
  float offset;  // added to the weights
};

/// A row in registers: norm_width columns at a time; access i has column group member + i * members.
template <bool Centred, bool Add, NormKind Kind, class X, class B, class Y>
__global__ void __launch_bounds__(warp_size* norm_most_warps) norm_kernel(NormCall<X, B, Y> call) {
  using Team = RowTeam<Kind>;
  const std::int64_t row = Team::first_row();
  if (row >= call.rows) return;  // all of a warp, or none
  const std::int64_t start = row * call.columns;
  const float scale = 1.0F / static_cast<float>(call.columns);
  float v[norm_packs][norm_width];
  float total = 0;
  MAESTRO_UNROLL
  for (int p = 0; p < norm_packs; ++p) {
    const int column = (Team::member() + p * Team::members()) * norm_width;
    if (column >= call.columns) continue;
    load_floats(call.x + start + column, v[p]);
    if constexpr (Add) {
      float other[norm_width];
      load_floats(call.added + start + column, other);
      MAESTRO_UNROLL
      for (int i = 0; i < norm_width; ++i) v[p][i] += other[i];
      store_floats(call.sum + start + column, v[p]);
    }
    MAESTRO_UNROLL
    for (int i = 0; i < norm_width; ++i) total += v[p][i];
  }
  const float mean = Centred ? scale * Team::sum(total) : 0.0F;
  float squares = 0;
  MAESTRO_UNROLL
  for (int p = 0; p < norm_packs; ++p) {
    if ((Team::member() + p * Team::members()) * norm_width >= call.columns) continue;
    MAESTRO_UNROLL
    for (int i = 0; i < norm_width; ++i) squares += (v[p][i] - mean) * (v[p][i] - mean);
  }
  const float rstd = 1.0F / sqrtf(scale * Team::sum(squares) + call.epsilon);
  if (Team::member() == 0) {
    if constexpr (Centred) call.mean[row] = mean;
    call.rstd[row] = rstd;
  }
  MAESTRO_UNROLL
  for (int p = 0; p < norm_packs; ++p) {
    const int column = (Team::member() + p * Team::members()) * norm_width;
    if (column >= call.columns) continue;
    float weight[norm_width];
    float bias[norm_width] = {};
    load_floats(call.weight + column, weight);
    if constexpr (Centred) load_floats(call.bias + column, bias);
    MAESTRO_UNROLL
    for (int i = 0; i < norm_width; ++i) v[p][i] = (v[p][i] - mean) * rstd * (weight[i] + call.offset) + bias[i];
    store_floats(call.y + start + column, v[p]);
  }
}

/// Normalises rows that do not fit: each pass reads the row again.
template <bool Centred, bool Add, class X, class B, class Y>
__global__ void __launch_bounds__(warp_size* norm_most_warps) norm_wide_kernel(NormCall<X, B, Y> call) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t start = row * call.columns;
  const auto first = static_cast<int>(threadIdx.x);
  const auto step = static_cast<int>(blockDim.x);
  const float scale = 1.0F / static_cast<float>(call.columns);
  const auto value = [&](int column) {  // a thread reads only values that it wrote
    if constexpr (Add) return call.sum[start + column];
    return to_float(call.x[start + column]);
  };
  if constexpr (Add) {
    for (int column = first; column < call.columns; column += step) {
      call.sum[start + column] = to_float(call.x[start + column]) + to_float(call.added[start + column]);
    }
  }
  float mean = 0;
  if constexpr (Centred) {
    float total = 0;
    for (int column = first; column < call.columns; column += step) total += value(column);
    mean = scale * block_sum(total);
  }
  float squares = 0;
  for (int column = first; column < call.columns; column += step) {
    squares += (value(column) - mean) * (value(column) - mean);
  }
  const float rstd = 1.0F / sqrtf(scale * block_sum(squares) + call.epsilon);
  if (first == 0) {
    if constexpr (Centred) call.mean[row] = mean;
    call.rstd[row] = rstd;
  }
  for (int column = first; column < call.columns; column += step) {
    const float bias = Centred ? call.bias[column] : 0.0F;
    call.y[start + column] = from_float<Y>((value(column) - mean) * rstd * (call.weight[column] + call.offset) + bias);
  }
}

}  // namespace maestro::cuda
