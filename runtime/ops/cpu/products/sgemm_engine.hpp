// SPDX-License-Identifier: Apache-2.0
// Products in f32 arithmetic by oneDNN's sgemm; bf16 operands are widened, and weights transposed, a block at a time.
// An f32 weight is used in place, without a copy; a bf16 weight takes 2 bytes per element.
#pragma once

#include "runtime/ops/cpu/pointwise/pointwise_kernels.hpp"
#include "runtime/ops/cpu/products/matrix_kernels.hpp"
#include "runtime/ops/cpu/products/product_engine.hpp"
#include "runtime/ops/cpu/scratch.hpp"

namespace maestro::cpu {

class SgemmEngine final : public ProductEngine {
 public:
  /// With `round_weights` packs are bf16 copies of the values. `scratch` must outlive the engine.
  SgemmEngine(Isa isa, bool round_weights, ScratchPool& scratch);

  [[nodiscard]] std::unique_ptr<PackedPanel> pack(const Tensor& w, PackFor use,
                                                  std::unique_ptr<PackedPanel> reuse) const override;
  void multiply(const Matrix& in, const PackedPanel& right, PackFor use, const Matrix& out,
                const Epilogue& epilogue) const override;
  [[nodiscard]] std::int64_t few_rows() const override { return 40; }
  void multiply_each(const Matrix& in, const PackedPanel& right, const Matrix& out,
                     const Epilogue& epilogue) const override;
  void copy_column(const PackedPanel& right, std::int64_t column, float* to) const override;
  void add_outer_products(const Tensor& dy, const Tensor& x, const Tensor& dw) const override;

 private:
  class RightOperand;
  /// Computes to = epilogue(a b); `wide_out` holds the f32 result if `to` is bf16.
  void multiply_block(const Matrix& a, const Matrix& b, const Matrix& to, const Epilogue& epilogue,
                      float* wide_out) const;
  const MatrixKernels& matrix_;
  const PointwiseKernels& pointwise_;
  bool round_weights_;
  ScratchPool& scratch_;
};

}  // namespace maestro::cpu
