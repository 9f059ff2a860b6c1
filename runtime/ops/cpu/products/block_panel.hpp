// SPDX-License-Identifier: Apache-2.0
// Products with a panel that stays in MXFP4: some of its rows at a time are widened to f32 and multiplied by an engine
// for f32 weights, so that a product needs no other memory than these rows'.
#pragma once

#include <vector>

#include "runtime/ops/cpu/products/product_engine.hpp"
#include "runtime/ops/cpu/scratch.hpp"

namespace maestro::cpu {

/// A copy of a group's rows (N, K).
class BlockPanel final : public PackedPanel {
 public:
  explicit BlockPanel(const Mxfp4Rows& rows);
  [[nodiscard]] std::size_t bytes() const override { return blocks_.size() + scales_.size(); }
  [[nodiscard]] bool for_every_use() const override { return true; }
  [[nodiscard]] bool columns_readable() const override { return false; }
  [[nodiscard]] const Mxfp4Rows* blocks() const override { return &rows_; }

 private:
  std::vector<std::uint8_t> blocks_;
  std::vector<std::uint8_t> scales_;
  Mxfp4Rows rows_;
};

struct BlockProducts {
  const ProductEngine& engine;  ///< for f32 weights
  ScratchPool& scratch;
  const MatrixKernels& kernels;
};
/// Computes out (M, N) = in (M, K) times the rows, transposed; with `each`, the bits of a row of `in` do not depend on
/// the others.
void multiply_blocks(const BlockProducts& by, const Matrix& in, const Mxfp4Rows& right, const Matrix& out, bool each);
/// Computes out (M, K) = in (M, N) times the rows.
void multiply_blocks_backward(const BlockProducts& by, const Matrix& in, const Mxfp4Rows& right, const Matrix& out);

}  // namespace maestro::cpu
