// SPDX-License-Identifier: Apache-2.0
// Kernels around the library's products: rearranging weights, the epilogue of a block of results, sums of columns.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

/// to(j, i) = from(i, j) for i < rows, j < columns, widened; strides in elements between rows.
struct TransposeCall {
  In from;
  std::int64_t from_stride;
  float* to;
  std::int64_t to_stride;
  std::int64_t rows;
  std::int64_t columns;
};

/// to (rows, columns) = activation(from + bias); `to` may be `from`.
struct EpilogueCall {
  const float* from;
  std::int64_t from_stride;
  Out to;
  std::int64_t to_stride;
  std::int64_t rows;
  std::int64_t columns;
  const float* bias;  ///< (columns), or null
  bool gelu;
  bool accumulate;  ///< adds to the values of `to`
};

struct MatrixKernels {
  void (*transpose)(const TransposeCall& call);
  void (*epilogue)(const EpilogueCall& call);
  /// Computes sums (columns) += column sums of x (rows, columns), rows in order.
  void (*add_column_sums)(In x, std::int64_t rows, std::int64_t columns, float* sums);
};
MAESTRO_KERNELS(MatrixKernels, matrix_kernels)

}  // namespace maestro::cpu
