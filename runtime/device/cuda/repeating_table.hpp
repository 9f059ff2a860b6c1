// SPDX-License-Identifier: Apache-2.0
// A table of operators that replays the passes which repeat.
//
// RT-1: a pass (OperatorTable::repeat) queues the same work in the same order as its calls would one by one.
// RT-2: a call that cannot wait until the pass has made all of them ends the collecting: what was collected is issued,
//       and everything behind it at once.
// RT-3: where nothing repeats, or graphs do not pay, calls are issued as they come (GP-1, GP-4).
#pragma once

#include <functional>
#include <memory>

#include "runtime/device/cuda/operator_calls.hpp"
#include "runtime/device/graph_policy.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro::cuda {

struct RepeatingSite {
  GraphCache& graphs;
  MemorySpace& pinned;  ///< outlives the figures, too
  cudaStream_t stream = nullptr;
  std::size_t most_plain = GraphPolicyOptions().most_plain;
};

/// Over a table whose weights are PlainWeights. Threads and errors are that table's.
class RepeatingTable final : public OperatorTable {
 public:
  RepeatingTable(std::unique_ptr<const OperatorTable> table, const RepeatingSite& site);
  ~RepeatingTable() override;
  RepeatingTable(const RepeatingTable&) = delete;
  RepeatingTable& operator=(const RepeatingTable&) = delete;

  void repeat(std::uint64_t place, const std::function<void()>& calls) const override;

  [[nodiscard]] MemorySpace& memory() const override { return table_->memory(); }
  void zero(const Tensor& to) const override;
  void copy(const Tensor& from, const Tensor& to) const override;
  void upload(const Tensor& host_from, const Tensor& to) const override;
  void download(const Tensor& from, const Tensor& host_to) const override;
  void put(std::span<const std::byte> values, const Tensor& to) const override;

  [[nodiscard]] bool takes_plain_weights() const override { return table_->takes_plain_weights(); }
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
  /// What passes change through an interface that is const.
  struct State;
  /// Collects the call, or makes it.
  template <class... Parameters, class... Arguments>
  void call(void (OperatorTable::*method)(Parameters...) const, const Arguments&... arguments) const;
  /// The table, for calls that cannot wait (RT-2).
  [[nodiscard]] const OperatorTable& now() const;

  std::unique_ptr<const OperatorTable> table_;
  std::unique_ptr<State> state_;
};

}  // namespace maestro::cuda
