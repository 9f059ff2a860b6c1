// SPDX-License-Identifier: Apache-2.0
// Matrix products of the CPU backend, on the calling thread only. Shapes as in operator_table.hpp: x (M, K), w (N, K),
// y (M, N).
//
// Engines:
// - f32 arithmetic by oneDNN's sgemm, for f32 and, with operands widened block by block, for bf16. Measured on a
//   Sapphire Rapids core whose fused multiply-adds peak at 228 GFLOP/s: 195-224 GFLOP/s for y and dx, 170-220 for dw,
//   at any M from 64 up. oneDNN's matmul primitive with its own blocked weights reached 190-215, and 57-87 for dw if
//   x's rows are a multiple of 4 KiB apart; it also needs a compiled primitive per M, and M changes with every packed
//   micro-batch.
// - bf16 dot products, if they are faster (Bf16Products::native): by kernels of maestro on a plain bf16 weight, or with
//   AMX by oneDNN's matmul primitive.
// All round operands to bf16 in bf16 products and accumulate in f32.
//
// A weight is cut along N into panels of at most `widest_panel` rows, so that the fused losses can walk a vocabulary in
// chunks; most weights have a single panel. A weight of several groups has a panel for each.
//
// Thread-safety: all functions may be called from several threads at once.
// Errors: shapes and dtypes are asserted. A refusal by oneDNN itself throws JobError(internal) naming the product.
#pragma once

#include <memory>
#include <vector>

#include "runtime/ops/cpu/isa.hpp"
#include "runtime/ops/cpu/products/matrix_kernels.hpp"
#include "runtime/ops/cpu/products/product_engine.hpp"
#include "runtime/ops/cpu/scratch.hpp"

namespace maestro::cpu {

/// An odd multiple of 64, like every panel width but the last: rows of a block (M, panel) then do not lie a multiple of
/// 4 KiB apart, which would map them to the same few cache sets.
inline constexpr std::int64_t widest_panel = 4032;

/// Rows [first, first + count) of a weight.
struct PanelRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

class CpuPackedWeight final : public PackedWeight {
 public:
  /// `rows` counts all groups; a group of several is a panel.
  CpuPackedWeight(std::int64_t rows, std::int64_t columns, DType compute, PackFor use, std::int64_t groups);
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] bool rows_readable() const override;
  [[nodiscard]] std::int64_t rows() const { return rows_; }        ///< N
  [[nodiscard]] std::int64_t columns() const { return columns_; }  ///< K
  [[nodiscard]] DType compute() const { return compute_; }
  /// Returns whether products of this use take the pack.
  [[nodiscard]] bool serves(PackFor use) const;
  [[nodiscard]] int panels() const { return static_cast<int>(panels_.size()); }
  [[nodiscard]] PanelRange range(int panel) const;
  [[nodiscard]] int panel_of(std::int64_t row) const { return static_cast<int>(row / panel_rows_); }
  [[nodiscard]] const PackedPanel& panel(int index) const { return *panels_[static_cast<std::size_t>(index)]; }
  /// Returns the engine's part of a panel, to be replaced on repacking.
  [[nodiscard]] std::unique_ptr<PackedPanel>& slot(int index) { return panels_[static_cast<std::size_t>(index)]; }

 private:
  std::int64_t rows_;
  std::int64_t columns_;
  DType compute_;
  PackFor use_;
  std::int64_t panel_rows_;
  std::vector<std::unique_ptr<PackedPanel>> panels_;
};

/// Panels of a weight packed by this backend, and the rows of each.
[[nodiscard]] int panels(const PackedWeight& weight);
[[nodiscard]] PanelRange panel(const PackedWeight& weight, int index);

class MatrixProducts {
 public:
  /// `scratch` must outlive this object.
  MatrixProducts(Isa isa, Bf16Products bf16, ScratchPool& scratch);

  /// Packs as OperatorTable::pack(). Takes over `reuse` if shape, compute and use agree.
  [[nodiscard]] std::unique_ptr<PackedWeight> pack(const Tensor& w, DType compute, PackFor use,
                                                   std::unique_ptr<PackedWeight> reuse, WeightGroup group = {}) const;
  /// Returns whether a pack serves every use (OperatorTable::packs_once).
  [[nodiscard]] bool packs_once(DType compute) const { return compute == DType::f32 || bf16_packs_once_; }
  /// Packs as OperatorTable::pack_blocks().
  [[nodiscard]] std::unique_ptr<PackedWeight> pack_blocks(const Mxfp4Rows& w, std::unique_ptr<PackedWeight> reuse,
                                                          WeightGroup group) const;
  /// Computes y = activation(x w^T + bias); with `rows_alone`, the bits of a row do not depend on the other rows.
  void linear(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& y,
              std::optional<GeluKind> activation, bool rows_alone = false) const;
  void linear_backward_input(const Tensor& dy, const PackedWeight& w, const Tensor& dx, bool accumulate) const;
  void linear_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& dbias) const;

  void grouped_linear(const GroupedLinear& op) const;
  void grouped_linear_backward_input(const GroupedLinearBackwardInput& op) const;
  void grouped_linear_backward_weight(const GroupedLinearBackwardWeight& op) const;

  /// Computes y (M, count) f32 or act = x (M, K) * w[panel]^T; `w` packed forward.
  void linear_panel(const Tensor& x, const PackedWeight& w, int panel, const Tensor& y) const;
  /// Writes row `row` of a weight packed forward, rows_readable(), to `to` (K).
  void copy_row(const PackedWeight& w, std::int64_t row, float* to) const;
  /// Computes dx (M, K) (+)= dy (M, count) act * w[panel]; `w` packed for backward_input.
  void linear_backward_input_panel(const Tensor& dy, const PackedWeight& w, int panel, const Tensor& dx,
                                   bool accumulate) const;
  // The weight gradient of a panel is linear_backward_weight into dw.row_slice(range.first, range.count).

 private:
  [[nodiscard]] const ProductEngine& engine(DType compute) const;
  const MatrixKernels& kernels_;
  ScratchPool& scratch_;
  std::unique_ptr<ProductEngine> f32_;
  std::unique_ptr<ProductEngine> bf16_;
  bool bf16_packs_once_ = true;
};

}  // namespace maestro::cpu
