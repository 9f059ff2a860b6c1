// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/losses/distillation.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "runtime/ops/cpu/losses/distillation_block.hpp"

namespace maestro::cpu {

namespace {

/// Products of fewer rows are slow; logits are then recomputed instead.
constexpr std::int64_t fewest_kept_rows = 128;

/// Returns the numbers of the rows with a target, in order.
std::span<std::int32_t> rows_with_target(const Tensor& targets, ScratchPool::Lease& lease) {
  const std::span<std::int32_t> all = lease.tensor(Shape{targets.elements()}, DType::i32).span<std::int32_t>();
  const std::span<const std::int32_t> values = targets.span<std::int32_t>();
  std::size_t count = 0;
  for (std::size_t row = 0; row < values.size(); ++row) {
    if (values[row] >= 0) all[count++] = static_cast<std::int32_t>(row);
  }
  return all.first(count);
}

/// Sets which columns of the vocabulary belong to this call.
void choose_columns(LossCall& call, const VocabularyPart& part) {
  const std::int64_t own = call.head->student.vocabulary;
  call.group = part.group;
  call.shared = call.head->shared_vocabulary;
  call.first = part.group == nullptr ? 0 : part.first;
  call.columns = {std::clamp<std::int64_t>(call.shared - call.first, 0, own), own};
  call.rest = call.shared < (part.group == nullptr ? own : part.vocabulary);
}

/// Returns the largest number of logits per row that any rank computes for either model.
std::int64_t widest_logits(const LossCall& call, const VocabularyPart& part) {
  const DistillationHead& head = *call.head;
  const bool computed_teacher = call.teacher == LossTerms::Teacher::dense && head.boundary == TeacherOutput::hidden;
  const std::int64_t student = part.group == nullptr ? head.student.vocabulary : part.vocabulary;
  const std::int64_t ranks = part.group == nullptr ? 1 : part.group->size();
  return (std::max(student, computed_teacher ? head.teacher_vocabulary : 0) + ranks - 1) / ranks;
}

/// Sets keep_logits and most_rows for blocks of nearly equal size, the same on all ranks of a group (DL-5, same sums on
/// all ranks).
void choose_blocks(LossCall& call, const LossLimits& limits, const VocabularyPart& part, std::int64_t active) {
  const std::int64_t row_bytes = widest_logits(call, part) * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t fitting = limits.logits_bytes / row_bytes;
  call.keep_logits = fitting >= std::min(active, fewest_kept_rows);
  const std::int64_t kept = std::min(fitting, std::max(limits.kept_rows, limits.cached_bytes / row_bytes));
  const std::int64_t most = std::min(limits.rows, call.keep_logits ? kept : limits.rows);
  const std::int64_t blocks = (active + most - 1) / most;
  call.most_rows = (active + blocks - 1) / blocks;
}

LossTerms terms_of(const DistillationHead& head, bool teacher) {
  LossTerms terms;
  terms.scale = head.student.scale;
  if (!teacher) return terms;
  terms.teacher = head.boundary == TeacherOutput::top_k        ? LossTerms::Teacher::top_k
                  : head.boundary == TeacherOutput::top_k_rest ? LossTerms::Teacher::top_k_rest
                  : head.boundary == TeacherOutput::sampled    ? LossTerms::Teacher::sampled
                                                               : LossTerms::Teacher::dense;
  terms.divergence = head.divergence;
  terms.temperature = head.temperature;
  terms.alpha = head.alpha;
  terms.beta = head.beta;
  terms.ratio_cap = head.ratio_cap;
  return terms;
}

}  // namespace

OutputLoss::OutputLoss(Isa isa, const MatrixProducts& products, ScratchPool& scratch, const LossLimits& limits)
    : isa_(isa), products_(&products), scratch_(&scratch), limits_(limits) {}

LossSums OutputLoss::cross_entropy(const CrossEntropyHead& head, const VocabularyPart& part) const {
  DistillationHead call;
  call.student = head;
  call.shared_vocabulary = part.group == nullptr ? head.vocabulary : part.vocabulary;
  return run(call, part, false);
}

LossSums OutputLoss::distillation(const DistillationHead& head, const VocabularyPart& part) const {
  assert(head.shared_vocabulary > 0);
  assert(head.shared_vocabulary <= (part.group == nullptr ? head.student.vocabulary : part.vocabulary));
  assert(!is_dense(head.boundary) || head.shared_vocabulary <= head.teacher_vocabulary);
  assert(head.boundary != TeacherOutput::sampled || head.divergence == Divergence::policy_gradient);
  return run(head, part, true);
}

LossSums OutputLoss::run(const DistillationHead& head, const VocabularyPart& part, bool teacher) const {
  const CrossEntropyHead& student = head.student;
  LossCall call;
  call.head = &head;
  choose_columns(call, part);
  assert(student.targets.elements() == student.hidden.rows());
  assert(!student.dhidden.defined() || student.head_backward != nullptr || call.columns.all == 0);
  LossSums sums;
  ScratchPool::Lease lease = scratch_->lease();
  const std::span<const std::int32_t> rows = rows_with_target(student.targets, lease);
  const bool untouched = static_cast<std::int64_t>(rows.size()) < student.hidden.rows() || call.columns.all == 0;
  if (student.dhidden.defined() && untouched) {
    std::memset(student.dhidden.raw(), 0, student.dhidden.bytes());
  }
  if (rows.empty()) return sums;

  const LossTerms terms = terms_of(head, teacher);
  const RowLoss loss(loss_kernels(isa_), terms);
  call.products = products_;
  call.pointwise = &pointwise_kernels(isa_);
  call.loss = &loss;
  call.teacher = terms.teacher;
  choose_blocks(call, limits_, part, static_cast<std::int64_t>(rows.size()));
  LossBlock block(call, lease);
  const auto step = static_cast<std::size_t>(call.most_rows);
  for (std::size_t first = 0; first < rows.size(); first += step) {
    block.run(rows.subspan(first, std::min(step, rows.size() - first)), sums);
  }
  const double learned = terms.divergence == Divergence::policy_gradient
                             ? terms.alpha * sums.policy
                             : terms.alpha * terms.temperature * terms.temperature * sums.kl;
  sums.total = (1 - terms.alpha) * sums.ce + learned;
  return sums;
}

}  // namespace maestro::cpu
