// The output layer with its losses, in blocks of rows: no more logits than Options::logits_bytes at once.
#include <algorithm>
#include <cassert>

#include "runtime/ops/cuda/cuda_operator_table.hpp"
#include "runtime/ops/cuda/device_error.hpp"
#include "runtime/ops/cuda/plain_weight.hpp"

namespace maestro::cuda {

namespace {

constexpr std::int64_t row_multiple = 128;    // tiles of matrix products
constexpr std::int64_t column_multiple = 64;  // aligned rows, whatever the vocabulary

std::int64_t rounded_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Rows of logits, longer than the vocabulary so that each begins aligned.
class Logits {
 public:
  Logits(Workspace& workspace, std::int64_t rows, std::int64_t vocabulary, DType dtype) {
    const Tensor sized(nullptr, dtype, Shape{rows, rounded_up(vocabulary, column_multiple)});
    memory_ = Tensor(workspace.take(sized.bytes()), dtype, sized.shape());
  }
  [[nodiscard]] Tensor rows(std::int64_t count) const { return memory_.row_slice(0, count); }

 private:
  Tensor memory_;
};

std::int64_t row_bytes(std::int64_t vocabulary, DType dtype) {
  return rounded_up(vocabulary, column_multiple) * static_cast<std::int64_t>(size_of(dtype));
}

/// Of logits of `bytes_of_row` bytes a row, for `rows` in all.
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
  return {part_of(losses.ce, first, count), part_of(losses.kl, first, count), part_of(losses.teacher_ce, first, count)};
}

/// The teacher's side of a block of rows; its logits may have to be computed.
class TeacherBlocks {
 public:
  TeacherBlocks(const DistillationHead& head, Workspace& workspace, std::int64_t rows) : head_(head) {
    if (head.boundary != Boundary::hidden) return;
    logits_.emplace(workspace, rows, head.teacher_vocabulary, head.teacher_hidden.dtype());
  }
  [[nodiscard]] TeacherRows rows(LtProducts& products, std::int64_t first, std::int64_t count) const {
    switch (head_.boundary) {
      case Boundary::hidden: {
        const Tensor logits = logits_->rows(count);
        products.linear(head_.teacher_hidden.row_slice(first, count), plain(*head_.teacher_head), {}, logits);
        return {logits, {}, {}};
      }
      case Boundary::logits:
        return {head_.teacher_logits.row_slice(first, count), {}, {}};
      case Boundary::top_k:
        break;
    }
    return {{}, head_.teacher_values.row_slice(first, count), head_.teacher_indices.row_slice(first, count)};
  }

 private:
  const DistillationHead& head_;
  std::optional<Logits> logits_;
};

/// The student's side.
class StudentBlocks {
 public:
  StudentBlocks(const CrossEntropyHead& head, LtProducts& products, const Logits& logits)
      : head_(head), products_(products), logits_(logits) {}
  [[nodiscard]] bool gradient() const { return head_.dhidden.defined() || head_.dhead.defined(); }
  [[nodiscard]] Tensor forward(std::int64_t first, std::int64_t count) const {
    const Tensor logits = logits_.rows(count);
    products_.linear(head_.hidden.row_slice(first, count), plain(*head_.head), {}, logits);
    return logits;
  }
  /// With the gradient of the logits in their place.
  void backward(const Tensor& dlogits, std::int64_t first, std::int64_t count) const {
    if (head_.dhidden.defined()) {
      products_.linear_backward_input(dlogits, plain(*head_.head_backward), head_.dhidden.row_slice(first, count),
                                      false);
    }
    if (head_.dhead.defined()) {
      products_.linear_backward_weight(dlogits, head_.hidden.row_slice(first, count), head_.dhead, {});
    }
  }

 private:
  const CrossEntropyHead& head_;
  LtProducts& products_;
  const Logits& logits_;
};

[[noreturn]] void refuse_parts() {
  throw DeviceError("an output layer that is cut over several devices is not done by this backend");
}

}  // namespace

Pending<LossSums> CudaOperatorTable::cross_entropy_head(const CrossEntropyHead& head) const {
  const std::int64_t rows = head.hidden.rows();
  if (rows == 0) return LossSums();
  Workspace& workspace = engines_->workspace;
  const Workspace::Scope scope(workspace);
  const DType act = head.hidden.dtype();
  const std::int64_t most = block_rows(options_.logits_bytes, row_bytes(head.vocabulary, act), rows);
  const Logits memory(workspace, most, head.vocabulary, act);
  const StudentBlocks student(head, engines_->products, memory);
  const RowLosses losses{column(workspace, rows), {}, {}};
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t count = std::min(most, rows - first);
    const Tensor logits = student.forward(first, count);
    cross_entropy_rows(at(), {logits, head.vocabulary, part_of(head.targets, first, count), head.scale,
                              student.gradient(), part_of(losses, first, count)});
    if (student.gradient()) student.backward(logits, first, count);
  }
  const auto sums = engines_->staging.figure<LossSums>();
  sum_rows(at(), head.targets, losses, {}, sums.get(), false);
  return Pending<LossSums>(std::shared_ptr<const LossSums>(sums));
}

Pending<LossSums> CudaOperatorTable::distillation_head(const DistillationHead& head) const {
  const std::int64_t rows = head.student.hidden.rows();
  if (rows == 0) return LossSums();
  Workspace& workspace = engines_->workspace;
  const Workspace::Scope scope(workspace);
  const DType act = head.student.hidden.dtype();
  std::int64_t bytes_of_row = row_bytes(head.student.vocabulary, act);
  if (head.boundary == Boundary::hidden)
    bytes_of_row += row_bytes(head.teacher_vocabulary, head.teacher_hidden.dtype());
  const std::int64_t most = block_rows(options_.logits_bytes, bytes_of_row, rows);
  const Logits memory(workspace, most, head.student.vocabulary, act);
  const TeacherBlocks teacher(head, workspace, most);
  const StudentBlocks student(head.student, engines_->products, memory);
  const RowLosses losses{column(workspace, rows), column(workspace, rows), column(workspace, rows)};
  const DistillationWeights weights{head.divergence, head.temperature, head.alpha, head.beta};
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t count = std::min(most, rows - first);
    const TeacherRows teacher_rows = teacher.rows(engines_->products, first, count);
    const Tensor logits = student.forward(first, count);
    distillation_rows(at(),
                      {logits, head.shared_vocabulary, part_of(head.student.targets, first, count), head.student.scale,
                       student.gradient(), part_of(losses, first, count)},
                      teacher_rows, weights);
    if (student.gradient()) student.backward(logits, first, count);
  }
  const auto sums = engines_->staging.figure<LossSums>();
  sum_rows(at(), head.student.targets, losses, weights, sums.get(), false);
  return Pending<LossSums>(std::shared_ptr<const LossSums>(sums));
}

Pending<LossSums> CudaOperatorTable::cross_entropy_head(const CrossEntropyHead& head,
                                                        const VocabularyPart& part) const {
  if (part.group != nullptr) refuse_parts();
  return cross_entropy_head(head);
}

Pending<LossSums> CudaOperatorTable::distillation_head(const DistillationHead& head, const VocabularyPart& part) const {
  if (part.group != nullptr) refuse_parts();
  return distillation_head(head);
}

void CudaOperatorTable::top_k(const Tensor& logits, const Tensor& values, const Tensor& indices) const {
  cuda::top_k(at(), logits, values, indices);
}

}  // namespace maestro::cuda
