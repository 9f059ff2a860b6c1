// SPDX-License-Identifier: Apache-2.0
// Kernels around the library's products: rearranging weights, the operations after a block's product, column sums.
#pragma once

#include <optional>

#include "runtime/core/gelu_kind.hpp"
#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

/// Sets to(j, i) = from(i, j) for i < rows, j < columns, widened; strides in elements between rows.
struct TransposeCall {
  In from;
  std::int64_t from_stride;
  float* to;
  std::int64_t to_stride;
  std::int64_t rows;
  std::int64_t columns;
};

/// Sets to (rows, columns) = activation(from + bias); `to` may be `from`.
struct EpilogueCall {
  const float* from;
  std::int64_t from_stride;
  Out to;
  std::int64_t to_stride;
  std::int64_t rows;
  std::int64_t columns;
  const float* bias;  ///< (columns), or null
  std::optional<GeluKind> activation;
  bool accumulate;  ///< adds to the values in `to`
};

/// Columns in a bf16 weight block: [block of columns][pair of depth][column][2], oneDNN's BA16a64b2a; columns and depth
/// are padded with zeros, depth to 32.
inline constexpr std::int64_t bf16_block_columns = 64;
inline constexpr std::int64_t bf16_block_depth = 32;

/// Computes `to` = rows (row_count, depth) f32 times blocks of bf16 weights, summed in f32.
struct RowProductCall {
  const float* rows;
  std::int64_t row_count;
  const std::uint16_t* blocks;
  std::int64_t depth;
  std::int64_t block_count;  ///< blocks of columns
  float* to;                 ///< (row_count, block_count * bf16_block_columns)
};

/// Computes to (row_count, count)[r][n] = row r of `rows` (row_count, depth) f32 times row n of weights (count,
/// stride), summed in f32.
struct RowDotsCall {
  const float* rows;
  std::int64_t row_count;
  std::int64_t row_stride;
  In weights;
  std::int64_t stride;
  std::int64_t depth;
  std::int64_t count;
  float* to;
};

/// Widens `count` blocks in MXFP4, each 16 bytes and a scale, to 32 numbers each; those too small to be normal may be
/// 0.
struct WidenBlocksCall {
  const std::uint8_t* blocks;
  const std::uint8_t* scales;
  std::int64_t count;
  float* to;
};

struct MatrixKernels {
  void (*transpose)(const TransposeCall& call);
  void (*epilogue)(const EpilogueCall& call);
  /// Computes sums (columns) += column sums of x (rows, columns), rows in order.
  void (*add_column_sums)(In x, std::int64_t rows, std::int64_t columns, float* sums);
  /// Products of few rows: they read the weights once and in order, at the speed of memory. The sums of a row have the
  /// same order, and so the same bits, however many other rows there are.
  void (*row_product)(const RowProductCall& call);
  void (*row_dots)(const RowDotsCall& call);
  void (*widen_blocks)(const WidenBlocksCall& call);
};
MAESTRO_KERNELS(MatrixKernels, matrix_kernels)

}  // namespace maestro::cpu
