// SPDX-License-Identifier: Apache-2.0
// Products of bf16 operands by AVX512_BF16's dot products, in kernels of maestro: 0.93 to 0.97 of the arithmetic peak
// for y and dx, 0.85 to 0.92 for dw on a Zen 5 core. A weight is a plain bf16 copy for every use, which is arranged
// a panel at a time; oneDNN 2.6 is as fast, but needs an arranged copy for each use.
#pragma once

#include "runtime/ops/cpu/products/sgemm_engine.hpp"

namespace maestro::cpu {

class DotEngine final : public ProductEngine {
 public:
  /// Requires a CPU with AVX512_BF16. `scratch` must outlive the engine.
  explicit DotEngine(ScratchPool& scratch);

  [[nodiscard]] std::unique_ptr<PackedPanel> pack(const Tensor& w, PackFor use,
                                                  std::unique_ptr<PackedPanel> reuse) const override {
    return plain_.pack(w, use, std::move(reuse));
  }
  void multiply(const Matrix& in, const PackedPanel& right, PackFor use, const Matrix& out,
                const Epilogue& epilogue) const override;
  void multiply_each(const Matrix& in, const PackedPanel& right, const Matrix& out,
                     const Epilogue& epilogue) const override {
    plain_.multiply_each(in, right, out, epilogue);
  }
  [[nodiscard]] std::int64_t few_rows() const override { return 16; }
  void copy_column(const PackedPanel& right, std::int64_t column, float* to) const override {
    plain_.copy_column(right, column, to);
  }
  void add_outer_products(const Tensor& dy, const Tensor& x, const Tensor& dw) const override;

 private:
  const MatrixKernels& kernels_;
  ScratchPool& scratch_;
  SgemmEngine plain_;  // has the same packs
};

}  // namespace maestro::cpu
