// SPDX-License-Identifier: Apache-2.0
// Every operator on a single CPU core: oneDNN computes matrix products, maestro's kernels of an instruction set compute
// everything else.
//
// Thread-safety: as for OperatorTable. Results are bitwise equal from run to run for the same instruction set and
// Bf16Products; others round differently.
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
  /// Throws JobError if the CPU does not support `isa`, or has no bf16 dot products for Bf16Products::native.
  explicit CpuOperatorTable(Isa isa = best_isa(), Bf16Products bf16 = best_bf16_products());
  CpuOperatorTable(const CpuOperatorTable&) = delete;
  CpuOperatorTable& operator=(const CpuOperatorTable&) = delete;

  [[nodiscard]] Isa isa() const { return isa_; }
  [[nodiscard]] Bf16Products bf16_products() const { return bf16_; }
  /// Returns the products of a weight's panels, for the fused output layers.
  [[nodiscard]] const MatrixProducts& products() const { return products_; }

  std::unique_ptr<PackedWeight> pack(const Tensor& w, DType compute, PackFor use, std::unique_ptr<PackedWeight> reuse,
                                     WeightGroup group = {}) const override;
  [[nodiscard]] bool takes_blocks() const override { return true; }
  [[nodiscard]] bool packs_once(DType compute) const override { return products_.packs_once(compute); }
  std::unique_ptr<PackedWeight> pack_blocks(const Mxfp4Rows& w, std::unique_ptr<PackedWeight> reuse,
                                            WeightGroup group) const override {
    return products_.pack_blocks(w, std::move(reuse), group);
  }

  using OperatorTable::run;
  void run(const Linear& op) const override;
  void run(const LinearBackwardInput& op) const override;
  void run(const LinearBackwardWeight& op) const override;
  void run(const Norm& op) const override;
  void run(const NormBackward& op) const override;
  void run(const HeadNorm& op) const override;
  void run(const HeadNormBackward& op) const override;
  void run(const Gelu& op) const override;
  void run(const GeluBackward& op) const override;
  void run(const Glu& op) const override;
  void run(const GluBackward& op) const override;
  void run(const Softcap& op) const override;
  void run(const Add& op) const override;
  void run(const Cast& op) const override;
  void run(const Embedding& op) const override;
  void run(const EmbeddingBackward& op) const override;
  void run(const ShiftIds& op) const override;
  void run(const PickColumns& op) const override;
  void run(const IndexSelect& op) const override;
  void run(const IndexAdd& op) const override;
  void run(const Rotary& op) const override;
  void run(const Attention& op) const override;
  void run(const AttentionBackward& op) const override;
  void run(const CachedAttention& op) const override;
  void run(const CausalConv& op) const override;
  void run(const CausalConvBackward& op) const override;
  void run(const CachedConv& op) const override;
  Pending<LossSums> run(const CrossEntropyLoss& op) const override;
  Pending<LossSums> run(const DistillationLoss& op) const override;
  void run(const TopK& op) const override;
  void run(const AdamW& op) const override;
  void run(const StepCounts& op) const override;
  Pending<double> run(const SumOfSquares& op) const override;
  void run(const AddInto& op) const override;
  void run(const Scale& op) const override;
  void run(const Multiply& op) const override;
  void run(const Curved& op) const override;
  void run(const CurvedBackward& op) const override;
  void run(const MemoryGate& op) const override;
  void run(const MemoryGateBackward& op) const override;
  void run(const Softmax& op) const override;
  void run(const SoftmaxBackward& op) const override;
  void run(const RowDot& op) const override;
  void run(const Cosine& op) const override;
  void run(const CosineBackward& op) const override;
  void run(const CopyColumns& op) const override;
  Pending<LossSums> run(const SumLoss& op) const override;
  void run(const Custom& op) const override;
  void run(const Route& op) const override;
  void run(const RouteBackward& op) const override;
  void run(const CountRoutes& op) const override;
  void run(const SortRoutes& op) const override;
  void run(const GroupedLinear& op) const override;
  void run(const GroupedLinearBackwardInput& op) const override;
  void run(const GroupedLinearBackwardWeight& op) const override;
  void run(const CombineRows& op) const override;
  void run(const DeltaRule& op) const override;
  void run(const DeltaRuleBackward& op) const override;
  void run(const CachedDelta& op) const override;
  void run(const LatentHeads& op) const override;
  void run(const LatentHeadsBackward& op) const override;
  void run(const GroupedBias& op) const override;
  void run(const GroupedBiasBackward& op) const override;
  void run(const AttentionSinks& op) const override;
  void run(const AttentionSinksBackward& op) const override;

 private:
  Isa isa_;
  Bf16Products bf16_;
  const PointwiseKernels& pointwise_;
  mutable ScratchPool scratch_;  // before the members that lease from it
  MatrixProducts products_;
  AttentionEngine attention_;  // does not use AMX
  OutputLoss losses_;
  RotaryTable rotary_;
};

}  // namespace maestro::cpu
