// SPDX-License-Identifier: Apache-2.0
// Every operator on one CPU core: matrix products by oneDNN, everything else by own kernels of one instruction
// set.
//
// Thread-safety: as OperatorTable. Results are the same bit for bit from run to run for one instruction set and one
// kind of bf16 products; they differ between those in rounding.
#pragma once

#include "runtime/ops/cpu/attention/attention.hpp"
#include "runtime/ops/cpu/attention/rotary_table.hpp"
#include "runtime/ops/cpu/losses/distillation.hpp"
#include "runtime/ops/cpu/pointwise/pointwise_kernels.hpp"
#include "runtime/ops/cpu/products/matmul.hpp"
#include "runtime/ops/cpu/scratch.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro::cpu {

class CpuOperatorTable final : public OperatorTable {
 public:
  /// The CPU must support `isa` and, for native products, have bf16 dot products; throws JobError otherwise.
  explicit CpuOperatorTable(Isa isa = best_isa(), Bf16Products bf16 = best_bf16_products());
  CpuOperatorTable(const CpuOperatorTable&) = delete;
  CpuOperatorTable& operator=(const CpuOperatorTable&) = delete;

  [[nodiscard]] Isa isa() const { return isa_; }
  [[nodiscard]] Bf16Products bf16_products() const { return bf16_; }
  /// Products of a weight's panels, for the fused output layers.
  [[nodiscard]] const MatrixProducts& products() const { return products_; }

  std::unique_ptr<PackedWeight> pack(const Tensor& w, DType compute, PackFor use,
                                     std::unique_ptr<PackedWeight> reuse) const override;
  void linear(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& y,
              Activation activation) const override;
  void linear_backward_input(const Tensor& dy, const PackedWeight& w, const Tensor& dx, bool accumulate) const override;
  void linear_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& dbias) const override;

  void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y,
                  const Tensor& mean, const Tensor& rstd) const override;
  void layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                           const Tensor& rstd, const Tensor& dx, bool accumulate, const Tensor& dweight,
                           const Tensor& dbias) const override;
  void rms_norm(const Tensor& x, const Tensor& weight, double epsilon, const Tensor& y,
                const Tensor& rstd) const override;
  void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dx,
                         bool accumulate, const Tensor& dweight) const override;

  void gelu(const Tensor& x, const Tensor& y) const override;
  void gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const override;
  void swiglu(const Tensor& x, const Tensor& y) const override;
  void swiglu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const override;
  void add(const Tensor& a, const Tensor& b, const Tensor& out) const override;
  void cast(const Tensor& from, const Tensor& to) const override;

  void embedding(const Tensor& table, const Tensor& ids, const Tensor& positions_table,
                 std::span<const std::int32_t> positions, const Tensor& y) const override;
  void embedding_backward(const Tensor& dy, const Tensor& ids, std::span<const std::int32_t> positions,
                          const Tensor& dtable, const Tensor& dpositions) const override;
  void gather_rows(const Tensor& from, std::span<const std::int32_t> index, const Tensor& to) const override;
  void scatter_add_rows(const Tensor& rows, std::span<const std::int32_t> index, const Tensor& to) const override;
  void rotary(const Tensor& qkv, const AttentionShape& shape, std::span<const std::int32_t> positions, double theta,
              int direction) const override;

  void attention(const Tensor& qkv, const AttentionShape& shape, const SequenceLayout& layout, const Tensor& out,
                 const Tensor& lse) const override;
  void attention_backward(const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                          const AttentionShape& shape, const SequenceLayout& layout, const Tensor& dqkv) const override;

  Pending<LossSums> cross_entropy_head(const CrossEntropyHead& head) const override;
  Pending<LossSums> distillation_head(const DistillationHead& head) const override;
  Pending<LossSums> cross_entropy_head(const CrossEntropyHead& head, const VocabularyPart& part) const override;
  Pending<LossSums> distillation_head(const DistillationHead& head, const VocabularyPart& part) const override;
  void top_k(const Tensor& logits, const Tensor& values, const Tensor& indices,
             std::int64_t columns = 0) const override;

  using OperatorTable::adamw;
  void adamw(std::span<float> value, std::span<float> gradient, std::span<float> mean, std::span<float> variance,
             const AdamWStep& step) const override;
  [[nodiscard]] Pending<double> sum_of_squares(std::span<const float> values) const override;
  void add_into(std::span<float> into, std::span<const float> values) const override;

 private:
  Isa isa_;
  Bf16Products bf16_;
  const PointwiseKernels& pointwise_;
  mutable ScratchPool scratch_;  // before the members that lease from it
  MatrixProducts products_;
  Attention attention_;
  OutputLoss losses_;
  RotaryTable rotary_;
};

}  // namespace maestro::cpu
