// SPDX-License-Identifier: Apache-2.0
// The interface between matrix products as operators use them and the library that computes them: a dense left operand
// times a packed right operand, and the sum of outer products for a weight gradient.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/core/mxfp4.hpp"
#include "runtime/core/tensor.hpp"
#include "runtime/ops/cpu/products/matrix_kernels.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro::cpu {

/// A row-major matrix, f32 or bf16, with `stride` elements from row to row.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;

  /// Returns a tensor folded to (rows, columns).
  [[nodiscard]] static Matrix of(const Tensor& tensor) {
    return {tensor.raw(), tensor.dtype(), tensor.rows(), tensor.columns(), tensor.columns()};
  }
  [[nodiscard]] Matrix row_slice(std::int64_t first, std::int64_t count) const {
    assert(first >= 0 && first + count <= rows);
    return {static_cast<std::byte*>(data) + static_cast<std::size_t>(first * stride) * size_of(dtype), dtype, count,
            columns, stride};
  }
  [[nodiscard]] Matrix column_slice(std::int64_t first, std::int64_t count) const {
    assert(first >= 0 && first + count <= columns);
    return {static_cast<std::byte*>(data) + static_cast<std::size_t>(first) * size_of(dtype), dtype, rows, count,
            stride};
  }
};

/// A panel of a weight, arranged by an engine as the right operand (depth, columns) of its products.
class PackedPanel {
 public:
  virtual ~PackedPanel() = default;
  /// Returns the size of the panel's memory: 0 if it refers to the weight, which then outlives it.
  [[nodiscard]] virtual std::size_t bytes() const = 0;
  /// Returns the rows of a panel that stays in MXFP4 (block_panel.hpp), which no engine takes; else null.
  [[nodiscard]] virtual const Mxfp4Rows* blocks() const { return nullptr; }
  /// Returns whether products of every use take it, however it was packed.
  [[nodiscard]] virtual bool for_every_use() const = 0;
  /// Returns whether ProductEngine::copy_column() accepts it.
  [[nodiscard]] virtual bool columns_readable() const = 0;
};

/// Operations after a product. An activation and accumulation exclude each other.
struct Epilogue {
  const float* bias = nullptr;  ///< (columns) or null
  std::optional<GeluKind> activation{};
  bool accumulate = false;  ///< adds to the values in the result
};

/// Writes `sums` (f32, as many rows and columns as `out`) to `out`, after the epilogue's operations.
inline void finish_rows(const MatrixKernels& kernels, const Matrix& sums, const Matrix& out, const Epilogue& epilogue) {
  kernels.epilogue({.from = static_cast<const float*>(sums.data),
                    .from_stride = sums.stride,
                    .to = {out.data, out.dtype == DType::bf16},
                    .to_stride = out.stride,
                    .rows = out.rows,
                    .columns = out.columns,
                    .bias = epilogue.bias,
                    .activation = epilogue.activation,
                    .accumulate = epilogue.accumulate});
}

/// Thread-safe. Operands have at least 1 row. The right operand of a weight w (N, K) is (K, N) for PackFor::forward,
/// (N, K) for backward_input.
class ProductEngine {
 public:
  virtual ~ProductEngine() = default;
  /// Packs w (N, K) f32 for `use`, or for every use. `reuse`, if any, came from this engine for the same shape and use.
  [[nodiscard]] virtual std::unique_ptr<PackedPanel> pack(const Tensor& w, PackFor use,
                                                          std::unique_ptr<PackedPanel> reuse) const = 0;
  /// Computes out (M, columns) = activation(in (M, depth) * right + bias) (+ out).
  virtual void multiply(const Matrix& in, const PackedPanel& right, PackFor use, const Matrix& out,
                        const Epilogue& epilogue) const = 0;
  /// Computes the same for few rows, whose bits do not depend on each other; `right` is packed forward.
  virtual void multiply_each(const Matrix& in, const PackedPanel& right, const Matrix& out,
                             const Epilogue& epilogue) const = 0;
  /// Returns the rows up to which multiply_each() is faster if the right operand comes from memory (`bench moe`).
  [[nodiscard]] virtual std::int64_t few_rows() const = 0;
  /// Writes column `column` of the right operand, a row of a weight packed forward, to `to` (depth).
  virtual void copy_column(const PackedPanel& right, std::int64_t column, float* to) const = 0;
  /// Computes dw (N, K) f32 += dy (M, N)^T x (M, K).
  virtual void add_outer_products(const Tensor& dy, const Tensor& x, const Tensor& dw) const = 0;
};

}  // namespace maestro::cpu
