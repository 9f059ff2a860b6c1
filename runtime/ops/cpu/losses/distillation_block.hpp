// SPDX-License-Identifier: Apache-2.0
// A block of rows in a fused output-layer loss: gathers the rows, walks the vocabulary, and writes their gradients. A
// working part of OutputLoss (distillation.hpp).
#pragma once

#include <span>
#include <vector>

#include "runtime/ops/cpu/joined_rows.hpp"
#include "runtime/ops/cpu/losses/distillation_row.hpp"
#include "runtime/ops/cpu/pointwise/pointwise_kernels.hpp"
#include "runtime/ops/cpu/products/matmul.hpp"
#include "runtime/ops/cpu/scratch.hpp"

namespace maestro::cpu {

/// A run of vocabulary columns inside one student panel and, if the teacher's logits are computed, one teacher panel.
/// Its columns are all shared, or all in the rest.
struct ColumnRun {
  bool shared = true;
  int student_panel = 0;
  int teacher_panel = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};
/// Columns of a rank, counted from its first.
struct OwnColumns {
  std::int64_t shared = 0;  ///< columns below the shared vocabulary; may be none in a group
  std::int64_t all = 0;     ///< shared columns and the rest
};
/// Cuts [0, columns.all) at columns.shared and at the panel edges of both weights; `teacher` may be null.
[[nodiscard]] std::vector<ColumnRun> column_runs(const PackedWeight& student, const PackedWeight* teacher,
                                                 const OwnColumns& columns);

/// Arguments that all blocks of a call share.
struct LossCall {
  const DistillationHead* head = nullptr;
  const MatrixProducts* products = nullptr;
  const PointwiseKernels* pointwise = nullptr;
  const RowLoss* loss = nullptr;
  LossTerms::Teacher teacher = LossTerms::Teacher::none;
  Communicator* group = nullptr;  ///< ranks that have the other columns; null: this rank has all
  std::int64_t shared = 0;        ///< columns of the divergence on all ranks: the shared vocabulary
  bool rest = false;              ///< some rank has columns after `shared`, only for the cross-entropy
  std::int64_t first = 0;         ///< this rank's first column
  OwnColumns columns;
  std::int64_t most_rows = 0;  ///< rows of a block, at most
  bool keep_logits = false;
};

/// A model's logits for the rows of a block: all panels at once, or panel by panel.
class PanelLogits {
 public:
  PanelLogits() = default;
  /// Allocates memory for a block's rows in the panels that cover [0, columns). `softcap`: soft cap of the logits; 0:
  /// none.
  PanelLogits(const PackedWeight& weight, std::int64_t columns, double softcap, const LossCall& call,
              ScratchPool::Lease& lease);
  /// Starts the next block, of `rows` rows; computes no logits.
  void restart(std::int64_t rows);
  /// Computes the panel from hidden (rows, C) unless its logits are already held.
  void compute(const LossCall& call, const Tensor& hidden, int index);
  /// Returns the logits of a panel, (rows, panel count).
  [[nodiscard]] Tensor tensor(int index) const;
  [[nodiscard]] float* at(int index, std::int64_t row, std::int64_t column) const;
  [[nodiscard]] int used_panels() const { return used_panels_; }
  [[nodiscard]] PanelRange range(int index) const { return panel(*weight_, index); }
  [[nodiscard]] std::int64_t widest() const { return widest_; }

 private:
  const PackedWeight* weight_ = nullptr;
  float softcap_ = 0;
  float* memory_ = nullptr;
  std::int64_t rows_ = 0;
  std::int64_t widest_ = 0;
  int used_panels_ = 0;
  int held_ = -1;  // the latest panel computed
  bool keep_all_ = false;
};

class LossBlock {
 public:
  LossBlock(const LossCall& call, ScratchPool::Lease& lease);
  /// Computes losses and gradients of `rows`: ascending row numbers of the call, at most call.most_rows.
  void run(std::span<const std::int32_t> rows, LossSums& sums);

 private:
  [[nodiscard]] bool wants_gradient() const;
  void begin_row(std::int64_t r);
  void run_row_by_row(LossSums& sums);
  void run_in_passes(LossSums& sums);
  void compute(const ColumnRun& run);
  void scan(std::int64_t r, const ColumnRun& run);
  void mix(std::int64_t r, const ColumnRun& run);
  [[nodiscard]] RowLoss::Columns columns(std::int64_t r, const ColumnRun& run);
  void gradient(std::int64_t r, const ColumnRun& run);
  void apply_gradient(int panel_index);
  [[nodiscard]] Tensor gathered(const Tensor& from, const Tensor& memory) const;
  void choose_dhidden();
  void write_dhidden() const;
  [[nodiscard]] Tensor row(const Tensor& tensor, std::int64_t r) const;

  const LossCall* call_;
  std::vector<ColumnRun> runs_;
  PanelLogits z_;
  PanelLogits u_;
  std::span<RowState> states_;
  std::span<SupportToken> support_;  // (most_rows, k)
  float* support_values_ = nullptr;  // (k)
  JoinedRows joined_;
  float* teacher_row_ = nullptr;  // bf16 teacher logits widened, (widest run)
  float* capped_row_ = nullptr;   // capped logits while their gradients replace them, (widest panel)
  Tensor rounded_;                // dlogits of a panel in bf16
  Tensor hidden_memory_, teacher_hidden_memory_, dhidden_memory_;

  // State of the current block.
  std::span<const std::int32_t> rows_;
  bool contiguous_ = false;
  Tensor hidden_, teacher_hidden_, dhidden_;
};

}  // namespace maestro::cpu
