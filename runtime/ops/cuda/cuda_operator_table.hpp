// SPDX-License-Identifier: Apache-2.0
// Every operator on one CUDA device: matrix products by cuBLASLt, attention by cuDNN or own kernels, everything else by
// own kernels, all queued on one stream.
//
// GT-1: nothing waits for the device, except that a product of a new shape may be timed the first time (Options::tune)
//       and that cuDNN builds plans of new shapes.
// GT-2: with Options::deterministic equal calls give equal bits.
// GT-3: attention of a forward pass and its backward pass are done by the same backend.
// GT-4: an output layer that is cut over ranks is done in blocks of as many rows on all of them, whatever tokens each
//       has: a block is a sequence of collectives.
//
// Products take weights as they lie: pack() makes a view. Logits of output layers live in row blocks of at most
// Options::logits_bytes, in the dtype of the hidden states, as in PyTorch under autocast; sums are in f32 and f64.
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
#include "runtime/ops/operator_table.hpp"

namespace maestro::cuda {

struct CudaTableOptions {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;        ///< that the stream may use
  MemorySpace* memory = nullptr;  ///< of the device; outlives the table
  MemorySpace* pinned = nullptr;  ///< pinned, of the host; outlives the table and its figures
  bool tune = true;
  bool deterministic = true;
  bool tf32 = false;  ///< products of f32 may round their operands to TF32
  std::size_t logits_bytes = std::size_t{512} << 20;
  /// Says once, in one line, what a person may want to know: why attention is not done by cuDNN, or a product not by
  /// cuBLASLt.
  std::function<void(const std::string&)> say;
};

/// Thread-safety: belongs to the device's thread; others may call while no work is queued. The device must be current.
/// Errors: DeviceError.
class CudaOperatorTable final : public OperatorTable {
 public:
  explicit CudaOperatorTable(const CudaTableOptions& options);
  CudaOperatorTable(const CudaOperatorTable&) = delete;
  CudaOperatorTable& operator=(const CudaOperatorTable&) = delete;

  [[nodiscard]] MemorySpace& memory() const override { return *options_.memory; }
  void zero(const Tensor& to) const override;
  void copy(const Tensor& from, const Tensor& to) const override;
  void upload(const Tensor& host_from, const Tensor& to) const override;
  void download(const Tensor& from, const Tensor& host_to) const override;
  void put(std::span<const std::byte> values, const Tensor& to) const override;

  [[nodiscard]] bool takes_plain_weights() const override { return true; }
  std::unique_ptr<PackedWeight> pack(const Tensor& w, DType compute, PackFor use,
                                     std::unique_ptr<PackedWeight> reuse) const override;
  void linear(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& y,
              Activation activation) const override;
  void linear_gelu(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& pre,
                   const Tensor& y) const override;
  void linear_backward_input(const Tensor& dy, const PackedWeight& w, const Tensor& dx, bool accumulate) const override;
  void linear_backward_input_gelu(const Tensor& dy, const PackedWeight& w, const Tensor& pre,
                                  const Tensor& dpre) const override;
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
  void add_layer_norm(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias, double epsilon,
                      const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd) const override;
  void add_rms_norm(const Tensor& a, const Tensor& b, const Tensor& weight, double epsilon, const Tensor& sum,
                    const Tensor& y, const Tensor& rstd) const override;

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
  void shift_ids(const Tensor& ids, std::int64_t by, std::int64_t limit, const Tensor& out) const override;
  void pick_columns(const Tensor& from, const Tensor& columns, const Tensor& to) const override;
  void gather_rows(const Tensor& from, std::span<const std::int32_t> index, const Tensor& to) const override;
  void scatter_add_rows(const Tensor& rows, std::span<const std::int32_t> index, const Tensor& to) const override;
  void rotary(const Tensor& qkv, const AttentionShape& shape, std::span<const std::int32_t> positions, double theta,
              int direction) const override;

  [[nodiscard]] std::string attention_refusal(const AttentionShape& shape) const override;
  void attention(const Tensor& qkv, const AttentionShape& shape, const SequenceLayout& layout, const Tensor& out,
                 const Tensor& lse) const override;
  void attention_backward(const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                          const AttentionShape& shape, const SequenceLayout& layout, const Tensor& dqkv) const override;

  Pending<LossSums> cross_entropy_head(const CrossEntropyHead& head) const override;
  Pending<LossSums> distillation_head(const DistillationHead& head) const override;
  /// The group works in the order of the stream, on memory().
  Pending<LossSums> cross_entropy_head(const CrossEntropyHead& head, const VocabularyPart& part) const override;
  Pending<LossSums> distillation_head(const DistillationHead& head, const VocabularyPart& part) const override;
  void top_k(const Tensor& logits, const Tensor& values, const Tensor& indices,
             std::int64_t columns = 0) const override;

  void adamw(std::span<float> value, std::span<float> gradient, std::span<float> mean, std::span<float> variance,
             const AdamWStep& step) const override;
  void adamw(std::span<float> value, std::span<float> gradient, std::span<float> mean, std::span<float> variance,
             const AdamWStep& step, std::span<bfloat16> rounded) const override;
  [[nodiscard]] Pending<double> sum_of_squares(std::span<const float> values) const override;
  void add_into(std::span<float> into, std::span<const float> values) const override;

 private:
  Pending<LossSums> output_loss(const DistillationHead& head, const VocabularyPart& part, bool with_teacher) const;
  /// What may be changed by calls that the interface has as const: scratch, plans, staging.
  struct Engines {
    explicit Engines(const CudaTableOptions& options);
    Workspace workspace;
    SpaceMemory products_memory;
    Launch launch;
    LtProducts products;
    std::optional<CudnnAttention> attention;
    PinnedStaging staging;
    std::set<std::string> refusals_said;
  };
  [[nodiscard]] const Launch& at() const { return engines_->launch; }
  /// GT-3: of the arguments alone.
  [[nodiscard]] bool by_cudnn(const AttentionShape& shape, DType act, const SequenceSummary& summary) const;
  void say_once(const std::string& refusal) const;

  CudaTableOptions options_;
  std::unique_ptr<Engines> engines_;
};

}  // namespace maestro::cuda
