// SPDX-License-Identifier: Apache-2.0
// The output layer with its losses, in blocks of rows: never more logits than Options::logits_bytes at once.
#include <algorithm>
#include <cassert>

#include "runtime/collective/rank_part.hpp"
#include "runtime/ops/cuda/cuda_operator_table.hpp"
#include "runtime/ops/cuda/losses/cut_loss.hpp"
#include "runtime/ops/cuda/products/plain_weight.hpp"

namespace maestro::cuda {

namespace {

constexpr std::int64_t row_multiple = 128;    // tiles of matrix products
constexpr std::int64_t column_multiple = 64;  // aligned rows, whatever the vocabulary

std::int64_t rounded_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Rows of logits, longer than the vocabulary so that each begins aligned. Without tokens it has zero columns, but is
/// defined.
class Logits {
 public:
  Logits(Workspace& workspace, std::int64_t rows, std::int64_t vocabulary, DType dtype) {
    const Tensor sized(nullptr, dtype, Shape{rows, rounded_up(vocabulary, column_multiple)});
    memory_ = Tensor(workspace.take(sized.bytes()), dtype, sized.shape());
  }
  [[nodiscard]] Tensor rows(std::int64_t count) const {
    return {memory_.raw(), memory_.dtype(), Shape{count, memory_.columns()}};
  }

 private:
  Tensor memory_;
};

std::int64_t row_bytes(std::int64_t vocabulary, DType dtype) {
  return rounded_up(vocabulary, column_multiple) * static_cast<std::int64_t>(size_of(dtype));
}

/// Returns a block's rows, with `bytes_of_row` bytes of logits per row and `rows` rows in all.
std::int64_t block_rows(std::size_t logits_bytes, std::int64_t bytes_of_row, std::int64_t rows) {
  const std::int64_t fitting = static_cast<std::int64_t>(logits_bytes) / bytes_of_row / row_multiple * row_multiple;
  return std::min(rows, std::max(row_multiple, fitting));
}

Tensor column(Workspace& workspace, std::int64_t rows) {
  return {workspace.take_array<float>(static_cast<std::size_t>(rows)), DType::f32, Shape{rows}};
}

Tensor part_of(const Tensor& column, std::int64_t first, std::int64_t count) {
  if (!column.defined()) return {};
  return column.reshaped(Shape{column.elements(), 1}).row_slice(first, count).reshaped(Shape{count});
}

RowLosses part_of(const RowLosses& losses, std::int64_t first, std::int64_t count) {
  return {part_of(losses.ce, first, count), part_of(losses.kl, first, count), part_of(losses.teacher_ce, first, count),
          part_of(losses.policy, first, count), part_of(losses.ratio, first, count)};
}

/// Caps logits and their padding if there is a cap.
void cap_logits(const Launch& at, const Tensor& logits, double cap) {
  if (cap > 0) softcap(at, {logits, cap});
}

/// This rank's columns of the output layer. An uncut vocabulary is a group of one rank.
class Columns {
 public:
  Columns(const DistillationHead& head, const VocabularyPart& part, bool computed_teacher)
      : ranks_(part.group == nullptr ? 1 : part.group->size()) {
    const bool whole = part.group == nullptr;
    first_ = whole ? 0 : part.first;
    student_ = head.student.vocabulary;
    shared_ = std::clamp<std::int64_t>(head.shared_vocabulary - first_, 0, student_);
    any_rest_ = head.shared_vocabulary < (whole ? student_ : part.vocabulary);
    widest_student_ = widest(whole ? head.student.vocabulary : part.vocabulary);
    if (!computed_teacher) return;
    widest_teacher_ = widest(head.teacher_vocabulary);
    if (shared_ > 0) teacher_ = whole ? head.teacher_vocabulary : rank_part(head.teacher_vocabulary, *part.group).count;
  }
  [[nodiscard]] std::int64_t first() const { return first_; }
  /// Returns the columns of the student's logits in memory. The shared vocabulary's come first; the rest is only in the
  /// cross-entropy.
  [[nodiscard]] std::int64_t student() const { return student_; }
  [[nodiscard]] std::int64_t shared() const { return shared_; }
  /// Returns whether some rank has columns of the rest.
  [[nodiscard]] bool any_rest() const { return any_rest_; }
  /// Returns the columns of teacher logits that are computed here; at least shared() or none.
  [[nodiscard]] std::int64_t teacher() const { return teacher_; }
  /// Returns the most columns of any rank, the same on all ranks.
  [[nodiscard]] std::int64_t widest_student() const { return widest_student_; }
  [[nodiscard]] std::int64_t widest_teacher() const { return widest_teacher_; }

 private:
  [[nodiscard]] std::int64_t widest(std::int64_t vocabulary) const { return (vocabulary + ranks_ - 1) / ranks_; }
  std::int64_t ranks_;
  std::int64_t first_ = 0;
  std::int64_t student_ = 0;
  std::int64_t shared_ = 0;
  bool any_rest_ = false;
  std::int64_t teacher_ = 0;
  std::int64_t widest_student_ = 0;
  std::int64_t widest_teacher_ = 0;
};

/// The teacher's side of a block of rows; its logits may have to be computed.
class TeacherBlocks {
 public:
  TeacherBlocks(const DistillationHead& head, const Columns& columns, Workspace& workspace, std::int64_t rows)
      : head_(head) {
    if (head.boundary == TeacherOutput::hidden) {
      logits_.emplace(workspace, rows, columns.teacher(), head.teacher_hidden.dtype());
    } else if (head.boundary == TeacherOutput::logits && columns.shared() == 0) {
      logits_.emplace(workspace, rows, 0, head.teacher_logits.dtype());  // teacher_logits may be undefined
    }
    computed_ = head.boundary == TeacherOutput::hidden && columns.shared() > 0;
  }
  [[nodiscard]] TeacherRows rows(const Launch& at, LtProducts& products, std::int64_t first, std::int64_t count) const {
    TeacherRows rows = signal(at, products, first, count);
    rows.drawn = part_of(head_.sampled, first, count);
    return rows;
  }

 private:
  [[nodiscard]] TeacherRows signal(const Launch& at, LtProducts& products, std::int64_t first,
                                   std::int64_t count) const {
    if (head_.boundary == TeacherOutput::top_k)
      return {{}, head_.teacher_values.row_slice(first, count), head_.teacher_indices.row_slice(first, count)};
    if (head_.boundary == TeacherOutput::sampled) return {{}, {}, {}, part_of(head_.teacher_sampled, first, count)};
    if (!logits_) return {head_.teacher_logits.row_slice(first, count), {}, {}};
    const Tensor logits = logits_->rows(count);
    if (computed_) {
      products.linear(head_.teacher_hidden.row_slice(first, count), plain(*head_.teacher_head), {}, logits);
      cap_logits(at, logits, head_.teacher_softcap);
    }
    return {logits, {}, {}};
  }

  const DistillationHead& head_;
  std::optional<Logits> logits_;
  bool computed_ = false;
};

/// The student's side.
class StudentBlocks {
 public:
  StudentBlocks(const CrossEntropyHead& head, const Columns& columns, Workspace& workspace, std::int64_t rows)
      : head_(head), logits_(workspace, rows, columns.student(), head.hidden.dtype()), some_(columns.student() > 0) {}
  [[nodiscard]] bool gradient() const { return head_.dhidden.defined() || head_.dhead.defined(); }
  [[nodiscard]] Tensor forward(const Launch& at, LtProducts& products, std::int64_t first, std::int64_t count) const {
    const Tensor logits = logits_.rows(count);
    if (!some_) return logits;
    products.linear(head_.hidden.row_slice(first, count), plain(*head_.head), {}, logits);
    cap_logits(at, logits, head_.softcap);
    return logits;
  }
  /// Runs the backward pass; the gradient of the logits is in their place.
  void backward(LtProducts& products, const Tensor& dlogits, std::int64_t first, std::int64_t count) const {
    if (!some_) return;
    if (head_.dhidden.defined()) {
      products.linear_backward_input(dlogits, plain(*head_.head_backward), head_.dhidden.row_slice(first, count),
                                     false);
    }
    if (head_.dhead.defined()) {
      products.linear_backward_weight(dlogits, head_.hidden.row_slice(first, count), head_.dhead, {});
    }
  }

 private:
  const CrossEntropyHead& head_;
  Logits logits_;
  bool some_;
};

/// Returns the rows of a block, from figures that all ranks share (GT-4, equal blocks).
std::int64_t rows_of_block(const DistillationHead& head, const Columns& columns, std::size_t logits_bytes) {
  std::int64_t bytes_of_row = row_bytes(columns.widest_student(), head.student.hidden.dtype());
  if (columns.widest_teacher() > 0) bytes_of_row += row_bytes(columns.widest_teacher(), head.teacher_hidden.dtype());
  return block_rows(logits_bytes, bytes_of_row, head.student.hidden.rows());
}

}  // namespace

Pending<LossSums> CudaOperatorTable::output_loss(const DistillationHead& head, const VocabularyPart& part,
                                                 bool with_teacher) const {
  const CrossEntropyHead& call = head.student;
  const std::int64_t rows = call.hidden.rows();
  if (rows == 0) return LossSums();
  Workspace& workspace = engines_->workspace;
  const Workspace::Scope scope(workspace);
  const Columns columns(head, part, with_teacher && head.boundary == TeacherOutput::hidden);
  const std::int64_t most = rows_of_block(head, columns, options_.logits_bytes);
  const StudentBlocks student(call, columns, workspace, most);
  std::optional<TeacherBlocks> teacher;
  RowLosses losses{column(workspace, rows), {}, {}};
  DistillationWeights weights;
  if (with_teacher) {
    teacher.emplace(head, columns, workspace, most);
    losses.kl = column(workspace, rows);
    losses.teacher_ce = column(workspace, rows);
    weights = {head.divergence, head.temperature, head.alpha, head.beta, head.ratio_cap};
    if (head.divergence == Divergence::policy_gradient) {
      losses.policy = column(workspace, rows);
      losses.ratio = column(workspace, rows);
    }
  }
  if (call.dhidden.defined() && columns.student() == 0) zero(call.dhidden);
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t count = std::min(most, rows - first);
    const TeacherRows teacher_rows = teacher ? teacher->rows(at(), engines_->products, first, count) : TeacherRows();
    const Tensor logits = student.forward(at(), engines_->products, first, count);
    const LossRows block{logits,
                         columns.shared(),
                         part_of(call.targets, first, count),
                         call.scale,
                         student.gradient(),
                         part_of(losses, first, count),
                         columns.student() - columns.shared(),
                         call.softcap};
    if (part.group != nullptr) {
      const LossPart own{block, teacher_rows, weights, columns.first(), head.shared_vocabulary, columns.any_rest()};
      cut_loss_rows(at(), own, *part.group);
    } else if (teacher) {
      distillation_rows(at(), block, teacher_rows, weights);
    } else {
      cross_entropy_rows(at(), block);
    }
    if (student.gradient()) student.backward(engines_->products, logits, first, count);
  }
  const auto sums = engines_->staging.figure<LossSums>();
  sum_rows(at(), call.targets, losses, weights, sums.get(), false);
  return Pending<LossSums>(std::shared_ptr<const LossSums>(sums));
}

Pending<LossSums> CudaOperatorTable::run(const CrossEntropyLoss& op) const {
  DistillationHead call;
  call.student = op.head;
  call.shared_vocabulary = op.part.group == nullptr ? op.head.vocabulary : op.part.vocabulary;
  return output_loss(call, op.part, false);
}

Pending<LossSums> CudaOperatorTable::run(const DistillationLoss& op) const {
  assert(op.head.boundary != TeacherOutput::top_k_rest);  // no kernel: sections refuse it on a GPU
  return output_loss(op.head, op.part, true);
}

}  // namespace maestro::cuda
