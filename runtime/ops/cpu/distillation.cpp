#include "runtime/ops/cpu/distillation.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "runtime/ops/cpu/distillation_block.hpp"

namespace maestro::cpu {

namespace {

/// Fewer rows than this make products slow; rather than that, logits are computed again.
constexpr std::int64_t fewest_kept_rows = 128;

/// Row numbers with a target, in order.
std::span<std::int32_t> rows_with_target(const Tensor& targets, ScratchPool::Lease& lease) {
  const std::span<std::int32_t> all = lease.tensor(Shape{targets.elements()}, DType::i32).span<std::int32_t>();
  const std::span<const std::int32_t> values = targets.span<std::int32_t>();
  std::size_t count = 0;
  for (std::size_t row = 0; row < values.size(); ++row) {
    if (values[row] >= 0) all[count++] = static_cast<std::int32_t>(row);
  }
  return all.first(count);
}

/// Sets keep_logits and most_rows, in blocks of nearly equal size.
void choose_blocks(LossCall& call, const LossLimits& limits, std::int64_t active) {
  const DistillationHead& head = *call.head;
  const bool computed_teacher = call.teacher == LossTerms::Teacher::dense && head.boundary == Boundary::hidden;
  const std::int64_t widest =
      std::max(head.student.vocabulary, computed_teacher ? head.teacher_vocabulary : std::int64_t{0});
  const std::int64_t fitting = limits.logits_bytes / (widest * static_cast<std::int64_t>(sizeof(float)));
  call.keep_logits = fitting >= std::min(active, fewest_kept_rows);
  const std::int64_t most = std::min(limits.rows, call.keep_logits ? fitting : limits.rows);
  const std::int64_t blocks = (active + most - 1) / most;
  call.most_rows = (active + blocks - 1) / blocks;
}

LossTerms terms_of(const DistillationHead& head, bool teacher) {
  LossTerms terms;
  terms.scale = head.student.scale;
  if (!teacher) return terms;
  terms.teacher = head.boundary == Boundary::top_k ? LossTerms::Teacher::top_k : LossTerms::Teacher::dense;
  terms.divergence = head.divergence;
  terms.temperature = head.temperature;
  terms.alpha = head.alpha;
  terms.beta = head.beta;
  return terms;
}

}  // namespace

OutputLoss::OutputLoss(Isa isa, const MatrixProducts& products, ScratchPool& scratch, const LossLimits& limits)
    : isa_(isa), products_(&products), scratch_(&scratch), limits_(limits) {}

LossSums OutputLoss::cross_entropy(const CrossEntropyHead& head) const {
  DistillationHead call;
  call.student = head;
  call.shared_vocabulary = head.vocabulary;
  return run(call, false);
}

LossSums OutputLoss::distillation(const DistillationHead& head) const {
  assert(head.shared_vocabulary > 0 && head.shared_vocabulary <= head.student.vocabulary);
  assert(head.boundary == Boundary::top_k || head.shared_vocabulary <= head.teacher_vocabulary);
  return run(head, true);
}

LossSums OutputLoss::run(const DistillationHead& head, bool teacher) const {
  const CrossEntropyHead& student = head.student;
  assert(student.targets.elements() == student.hidden.rows());
  assert(!student.dhidden.defined() || student.head_backward != nullptr);
  LossSums sums;
  ScratchPool::Lease lease = scratch_->lease();
  const std::span<const std::int32_t> rows = rows_with_target(student.targets, lease);
  if (student.dhidden.defined() && static_cast<std::int64_t>(rows.size()) < student.dhidden.rows()) {
    std::memset(student.dhidden.raw(), 0, student.dhidden.bytes());
  }
  if (rows.empty()) return sums;

  const LossTerms terms = terms_of(head, teacher);
  const RowLoss loss(loss_kernels(isa_), terms);
  LossCall call;
  call.head = &head;
  call.products = products_;
  call.pointwise = &pointwise_kernels(isa_);
  call.loss = &loss;
  call.teacher = terms.teacher;
  call.columns = head.shared_vocabulary;
  choose_blocks(call, limits_, static_cast<std::int64_t>(rows.size()));
  LossBlock block(call, lease);
  const auto step = static_cast<std::size_t>(call.most_rows);
  for (std::size_t first = 0; first < rows.size(); first += step) {
    block.run(rows.subspan(first, std::min(step, rows.size() - first)), sums);
  }
  sums.total = (1 - terms.alpha) * sums.ce + terms.alpha * terms.temperature * terms.temperature * sums.kl;
  return sums;
}

}  // namespace maestro::cpu
