// SPDX-License-Identifier: Apache-2.0
// Every operator on a CUDA device: matrix products by cuBLASLt, attention by cuDNN or maestro's kernels, everything
// else by maestro's kernels, all queued on a single stream. The same backend computes the attention of a forward pass
// and of its backward pass.
//
// GT-1 (no waiting): no operator waits for the device, except that a product of a new shape may be timed the first time
//       (Options::tune) and that cuDNN builds plans of new shapes.
// GT-2 (determinism): with Options::deterministic equal calls give equal bits.
// GT-4 (equal blocks): an output layer that is cut over ranks is done in blocks of as many rows on all of them,
//       whatever tokens each has: a block is a sequence of collectives.
//
// Products take weights in their original layout: pack() makes a view. Logits of output layers live in row blocks of at
// most Options::logits_bytes, in the dtype of the hidden states, as in PyTorch under autocast; sums are in f32 and f64.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "runtime/ops/cuda/attention/cudnn_attention.hpp"
#include "runtime/ops/cuda/kernels.hpp"
#include "runtime/ops/cuda/pinned_staging.hpp"
#include "runtime/ops/cuda/products/lt_products.hpp"
#include "runtime/ops/cuda/workspace.hpp"
#include "runtime/ops/device_queue.hpp"

namespace maestro::cuda {

struct CudaTableOptions {
  int device = 0;  ///< number of the device, which is current
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;        ///< multiprocessors that the stream may use
  MemorySpace* memory = nullptr;  ///< memory of the device; outlives the table
  MemorySpace* pinned = nullptr;  ///< pinned memory of the host; outlives the table and its figures
  bool tune = true;
  bool deterministic = true;
  bool tf32 = false;  ///< products of f32 may round their operands to TF32
  std::size_t logits_bytes = std::size_t{512} << 20;
  /// Receives each line for people at most once: why cuDNN does not compute attention, or cuBLASLt a product.
  std::function<void(const std::string&)> report;
};

/// Thread-safety: only the device's thread, or others while no work is queued. The device must be current. Errors:
/// DeviceError.
class CudaOperatorTable final : public OperatorTable, public DeviceQueue {
 public:
  explicit CudaOperatorTable(const CudaTableOptions& options);
  CudaOperatorTable(const CudaOperatorTable&) = delete;
  CudaOperatorTable& operator=(const CudaOperatorTable&) = delete;

  [[nodiscard]] MemorySpace& memory() const override { return *options_.memory; }
  [[nodiscard]] bool takes_plain_weights() const override { return true; }
  [[nodiscard]] int device() const override { return options_.device; }
  [[nodiscard]] void* stream() const override { return options_.stream; }
  void wait() const override;
  void make_current() const noexcept override;
  std::unique_ptr<PackedWeight> pack(const Tensor& w, DType compute, PackFor use, std::unique_ptr<PackedWeight> reuse,
                                     WeightGroup group = {}) const override;
  [[nodiscard]] bool takes_blocks() const override { return true; }
  std::unique_ptr<PackedWeight> pack_blocks(const Mxfp4Rows& w, std::unique_ptr<PackedWeight> reuse,
                                            WeightGroup group) const override;
  [[nodiscard]] std::string attention_refusal(const AttentionShape& shape) const override;

  using OperatorTable::run;
  void run(const Zero& op) const override;
  void run(const Copy& op) const override;
  void run(const Upload& op) const override;
  void run(const Download& op) const override;
  void run(const Put& op) const override;
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
  /// A group works in the order of the stream, on memory().
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
  Pending<LossSums> output_loss(const DistillationHead& head, const VocabularyPart& part, bool with_teacher) const;
  /// State that calls may change although the interface declares them const: scratch, plans, staging.
  struct Engines {
    explicit Engines(const CudaTableOptions& options);
    Workspace workspace;
    SpaceMemory products_memory;
    Launch launch;
    LtProducts products;
    std::optional<CudnnAttention> attention;
    PinnedStaging staging;
    std::set<std::string> refusals_reported;
  };
  [[nodiscard]] const Launch& at() const { return engines_->launch; }
  /// Returns whether cuDNN computes the call. Depends only on the arguments: the backward pass uses the same backend.
  template <class Op>
  [[nodiscard]] bool by_cudnn(const Op& op, const SequenceSummary& summary) const;
  void say_once(const std::string& refusal) const;

  CudaTableOptions options_;
  std::unique_ptr<Engines> engines_;
};

}  // namespace maestro::cuda
