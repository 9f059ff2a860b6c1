// SPDX-License-Identifier: Apache-2.0
// Kernel of lt_plain_product.hpp.
#pragma once

#include <cassert>

#include "runtime/ops/cuda/cuda_language.hpp"
#include "runtime/ops/cuda/products/lt_plain_product.hpp"

namespace maestro::cuda {

/// A factor of D = op(A) op(B): element (outer, inner) lies at outer * outer_step + inner * inner_step.
template <class T>
struct PlainFactor {
  const T* data;
  std::int64_t outer_step;
  std::int64_t inner_step;
  std::int64_t outer;
};

template <class Operand, class Result>
struct PlainProduct {
  PlainFactor<Operand> a;  ///< outer: D's rows
  PlainFactor<Operand> b;  ///< outer: D's columns
  std::int64_t inner;
  Result* d;
  std::int64_t leading;
  const Result* bias;  ///< bias along D's rows; null: none
  float beta;
};

inline constexpr int plain_tile = 32;
inline constexpr int plain_threads = 256;
inline constexpr int plain_columns_of_thread = plain_tile * plain_tile / plain_threads;

inline constexpr int plain_stride = plain_tile + 1;  // rows of a tile start in different banks

/// Loads tile (inner, outer) of a factor, zero beyond its edges; neighbouring threads read neighbouring memory.
template <class T>
__device__ void load_plain_tile(float* tile, const PlainFactor<T>& factor, std::int64_t first_outer,
                                std::int64_t first_inner, std::int64_t inner) {
  const bool inner_is_close = factor.inner_step == 1;
  for (int i = static_cast<int>(threadIdx.x); i < plain_tile * plain_tile; i += plain_threads) {
    const int close = i % plain_tile;
    const int far = i / plain_tile;
    const int in = inner_is_close ? close : far;
    const int out = inner_is_close ? far : close;
    const bool inside = first_outer + out < factor.outer && first_inner + in < inner;
    const std::int64_t place = (first_outer + out) * factor.outer_step + (first_inner + in) * factor.inner_step;
    tile[in * plain_stride + out] = inside ? to_float(factor.data[place]) : 0.0F;
  }
}

template <class Operand, class Result>
__global__ void plain_product_kernel(PlainProduct<Operand, Result> p) {
  MAESTRO_SHARED(float, a, plain_tile* plain_stride);
  MAESTRO_SHARED(float, b, plain_tile* plain_stride);
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * plain_tile;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.y) * plain_tile;
  const int row = static_cast<int>(threadIdx.x) % plain_tile;
  const int column = static_cast<int>(threadIdx.x) / plain_tile * plain_columns_of_thread;
  float sum[plain_columns_of_thread] = {};
  for (std::int64_t inner = 0; inner < p.inner; inner += plain_tile) {
    load_plain_tile(a, p.a, first_row, inner, p.inner);
    load_plain_tile(b, p.b, first_column, inner, p.inner);
    __syncthreads();
    for (int i = 0; i < plain_tile; ++i) {
      for (int j = 0; j < plain_columns_of_thread; ++j)
        sum[j] += a[i * plain_stride + row] * b[i * plain_stride + column + j];
    }
    __syncthreads();
  }
  if (first_row + row >= p.a.outer) return;
  for (int j = 0; j < plain_columns_of_thread; ++j) {
    if (first_column + column + j >= p.b.outer) return;
    Result* place = p.d + (first_row + row) + (first_column + column + j) * p.leading;
    float value = sum[j];
    if (p.beta != 0) value += p.beta * to_float(*place);
    if (p.bias != nullptr) value += to_float(p.bias[first_row + row]);
    *place = from_float<Result>(value);
  }
}

template <class Operand, class Result>
void launch_plain_product(const Launch& at, const ProductPlan& plan, const ProductPointers& pointers) {
  const auto factor = [](const void* data, const ColumnMajor& matrix, bool outer_is_rows) {
    return outer_is_rows ? PlainFactor<Operand>{static_cast<const Operand*>(data), 1, matrix.leading, matrix.rows}
                         : PlainFactor<Operand>{static_cast<const Operand*>(data), matrix.leading, 1, matrix.columns};
  };
  const PlainProduct<Operand, Result> product{
      .a = factor(pointers.a, plan.a, !plan.transpose_a),
      .b = factor(pointers.b, plan.b, plan.transpose_b),
      .inner = plan.transpose_a ? plan.a.rows : plan.a.columns,
      .d = static_cast<Result*>(pointers.d),
      .leading = plan.d.leading,
      .bias = plan.epilogue == ProductEpilogue::bias ? static_cast<const Result*>(pointers.vector) : nullptr,
      .beta = plan.beta};
  const auto tiles = [](std::int64_t side) { return static_cast<unsigned>((side + plain_tile - 1) / plain_tile); };
  launch({"plain_product", dim3(tiles(plan.d.rows), tiles(plan.d.columns)), dim3(plain_threads), 0, at.stream},
         plain_product_kernel<Operand, Result>, product);
}

template <class Result>
__global__ void add_bias_kernel(Result* d, std::int64_t leading, const Result* bias, std::int64_t rows) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * plain_threads + threadIdx.x;
  if (row >= rows) return;
  Result* place = d + row + static_cast<std::int64_t>(blockIdx.x) * leading;
  *place = from_float<Result>(to_float(*place) + to_float(bias[row]));
}

template <class Result>
void launch_add_bias(const Launch& at, const ProductPlan& plan, const ProductPointers& pointers) {
  const auto blocks = static_cast<unsigned>((plan.d.rows + plain_threads - 1) / plain_threads);
  launch({"add_bias", dim3(static_cast<unsigned>(plan.d.columns), blocks), dim3(plain_threads), 0, at.stream},
         add_bias_kernel<Result>, static_cast<Result*>(pointers.d), plan.d.leading,
         static_cast<const Result*>(pointers.vector), plan.d.rows);
}

}  // namespace maestro::cuda
