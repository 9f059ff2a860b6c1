// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/losses/distillation_block.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>
#include <type_traits>

namespace maestro::cpu {

namespace {

int panels_covering(const PackedWeight& weight, std::int64_t columns) {
  int count = 0;
  while (count < panels(weight) && panel(weight, count).first < columns) ++count;
  return count;
}

template <class T>
std::span<T> take(ScratchPool::Lease& lease, std::int64_t count) {
  static_assert(std::is_trivially_destructible_v<T>);
  const Tensor memory = lease.tensor(Shape{count * static_cast<std::int64_t>(sizeof(T))}, DType::u8);
  T* first = reinterpret_cast<T*>(memory.raw());
  std::uninitialized_default_construct_n(first, count);
  return {first, static_cast<std::size_t>(count)};
}

}  // namespace

std::vector<ColumnRun> column_runs(const PackedWeight& student, const PackedWeight* teacher,
                                   const OwnColumns& columns) {
  std::vector<ColumnRun> runs;
  ColumnRun run;
  while (run.first < columns.all) {
    run.shared = run.first < columns.shared;
    const PanelRange own = panel(student, run.student_panel);
    const std::int64_t own_end = own.first + own.count;
    std::int64_t end = std::min(run.shared ? columns.shared : columns.all, own_end);
    std::int64_t other_end = -1;
    if (teacher != nullptr && run.shared) {
      const PanelRange other = panel(*teacher, run.teacher_panel);
      other_end = other.first + other.count;
      end = std::min(end, other_end);
    }
    run.count = end - run.first;
    runs.push_back(run);
    run.first = end;
    if (end == own_end) ++run.student_panel;
    if (end == other_end) ++run.teacher_panel;
  }
  return runs;
}

PanelLogits::PanelLogits(const PackedWeight& weight, std::int64_t columns, double softcap, const LossCall& call,
                         ScratchPool::Lease& lease)
    : weight_(&weight),
      softcap_(static_cast<float>(softcap)),
      used_panels_(panels_covering(weight, columns)),
      keep_all_(call.keep_logits) {
  std::int64_t all = 0;
  for (int index = 0; index < used_panels_; ++index) {
    widest_ = std::max(widest_, range(index).count);
    all += range(index).count;
  }
  memory_ = lease.floats(call.most_rows * (keep_all_ ? all : widest_));
}

void PanelLogits::restart(std::int64_t rows) {
  rows_ = rows;
  held_ = -1;
}

void PanelLogits::compute(const LossCall& call, const Tensor& hidden, int index) {
  if (keep_all_ ? index <= held_ : index == held_) return;  // panels are requested in ascending order
  const Tensor logits = tensor(index);
  call.products->linear_panel(hidden, *weight_, index, logits);
  if (softcap_ > 0) call.pointwise->softcap({logits.raw(), false}, logits.elements(), softcap_);
  held_ = index;
}

Tensor PanelLogits::tensor(int index) const {
  const PanelRange columns = range(index);
  return {memory_ + (keep_all_ ? rows_ * columns.first : 0), DType::f32, Shape{rows_, columns.count}};
}

float* PanelLogits::at(int index, std::int64_t row, std::int64_t column) const {
  const PanelRange columns = range(index);
  return tensor(index).data<float>() + row * columns.count + (column - columns.first);
}

LossBlock::LossBlock(const LossCall& call, ScratchPool::Lease& lease) : call_(&call) {
  const DistillationHead& head = *call.head;
  const bool computed_teacher = call.teacher == LossTerms::Teacher::dense && head.boundary == TeacherOutput::hidden;
  if (call.columns.all > 0) {
    runs_ = column_runs(*head.student.head, computed_teacher ? head.teacher_head : nullptr, call.columns);
    z_ = PanelLogits(*head.student.head, call.columns.all, head.student.softcap, call, lease);
    if (computed_teacher && call.columns.shared > 0) {
      u_ = PanelLogits(*head.teacher_head, call.columns.shared, head.teacher_softcap, call, lease);
    }
  }
  const DType act = head.student.hidden.dtype();
  const Shape block{call.most_rows, head.student.hidden.columns()};
  states_ = take<RowState>(lease, call.most_rows);
  hidden_memory_ = lease.tensor(block, act);
  if (computed_teacher) {
    teacher_hidden_memory_ =
        lease.tensor(Shape{call.most_rows, head.teacher_hidden.columns()}, head.teacher_hidden.dtype());
  } else if (call.teacher == LossTerms::Teacher::dense && head.teacher_logits.dtype() == DType::bf16) {
    teacher_row_ = lease.floats(z_.widest());
  }
  if (names_tokens(head.boundary) && call.teacher != LossTerms::Teacher::none) {
    support_ = take<SupportToken>(lease, call.most_rows * head.teacher_indices.columns());
    support_values_ = lease.floats(head.teacher_indices.columns());
  }
  const std::int64_t most_support = support_.empty() ? 0 : head.teacher_indices.columns();
  const JoinedRows::Size size{call.most_rows, most_support, call.rest};
  joined_ = JoinedRows(call.group, *call.loss, {call.first, call.columns.shared}, size, lease);
  if (!wants_gradient()) return;
  if (head.student.softcap > 0) capped_row_ = lease.floats(z_.widest());
  if (act == DType::bf16) rounded_ = lease.tensor(Shape{call.most_rows, z_.widest()}, DType::bf16);
  if (head.student.dhidden.defined()) dhidden_memory_ = lease.tensor(block, DType::f32);
}

bool LossBlock::wants_gradient() const {
  return call_->head->student.dhidden.defined() || call_->head->student.dhead.defined();
}

void LossBlock::run(std::span<const std::int32_t> rows, LossSums& sums) {
  const DistillationHead& head = *call_->head;
  rows_ = rows;
  contiguous_ = rows.back() - rows.front() + 1 == static_cast<std::int32_t>(rows.size());
  hidden_ = gathered(head.student.hidden, hidden_memory_);
  z_.restart(static_cast<std::int64_t>(rows.size()));
  if (teacher_hidden_memory_.defined()) {
    teacher_hidden_ = gathered(head.teacher_hidden, teacher_hidden_memory_);
    u_.restart(static_cast<std::int64_t>(rows.size()));
  }
  choose_dhidden();
  for (std::size_t r = 0; r < rows.size(); ++r) begin_row(static_cast<std::int64_t>(r));
  if (call_->keep_logits && call_->group == nullptr) {
    run_row_by_row(sums);
  } else {
    run_in_passes(sums);
  }
  write_dhidden();
}

void LossBlock::begin_row(std::int64_t r) {
  const DistillationHead& head = *call_->head;
  const std::int32_t number = rows_[static_cast<std::size_t>(r)];
  const std::int32_t target = head.student.targets.data<std::int32_t>()[number];
  assert(target < call_->shared);
  std::size_t kept = 0;
  std::span<SupportToken> tokens;
  if (!support_.empty()) {
    const auto k = static_cast<std::size_t>(head.teacher_indices.columns());
    tokens = support_.subspan(static_cast<std::size_t>(r) * k, k);
    const std::int32_t* indices = head.teacher_indices.data<std::int32_t>() + static_cast<std::size_t>(number) * k;
    const float* values = head.teacher_values.data<float>() + static_cast<std::size_t>(number) * k;
    for (std::size_t i = 0; i < k; ++i) {
      if (indices[i] < 0 || indices[i] >= call_->shared) continue;
      tokens[kept].column = indices[i];
      support_values_[kept++] = values[i];
    }
  }
  const auto value = [number](const Tensor& rows) { return rows.defined() ? rows.data<float>()[number] : 0; };
  RowState& state = states_[static_cast<std::size_t>(r)];
  call_->loss->begin(state, target, tokens.first(kept), support_values_, value(head.teacher_rest));
  state.log_p = value(head.teacher_sampled);
  state.log_mu = value(head.sampled);
}

void LossBlock::run_row_by_row(LossSums& sums) {
  for (const ColumnRun& run : runs_) compute(run);
  for (std::size_t i = 0; i < rows_.size(); ++i) {  // a row stays in the L1 cache through all its steps
    const auto r = static_cast<std::int64_t>(i);
    for (const ColumnRun& run : runs_) scan(r, run);
    call_->loss->normalise(states_[i]);
    if (call_->loss->needs_mixture()) {
      for (const ColumnRun& run : runs_) mix(r, run);
    }
    call_->loss->finish(states_[i], sums);
    if (!wants_gradient()) continue;
    for (const ColumnRun& run : runs_) gradient(r, run);
  }
  if (!wants_gradient()) return;
  for (int index = 0; index < z_.used_panels(); ++index) apply_gradient(index);
}

void LossBlock::run_in_passes(LossSums& sums) {
  const auto rows = static_cast<std::int64_t>(rows_.size());
  const std::span<RowState> states = states_.first(rows_.size());
  for (const ColumnRun& run : runs_) {
    compute(run);
    for (std::int64_t r = 0; r < rows; ++r) scan(r, run);
  }
  joined_.join_scans(states);
  for (RowState& state : states) call_->loss->normalise(state);
  if (call_->loss->needs_mixture()) {
    for (const ColumnRun& run : runs_) {
      compute(run);
      for (std::int64_t r = 0; r < rows; ++r) mix(r, run);
    }
    joined_.join_mixtures(states);
  }
  for (RowState& state : states) call_->loss->finish(state, sums);
  if (!wants_gradient()) return;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    compute(runs_[i]);
    for (std::int64_t r = 0; r < rows; ++r) gradient(r, runs_[i]);
    const bool panel_done = i + 1 == runs_.size() || runs_[i + 1].student_panel != runs_[i].student_panel;
    if (!panel_done) continue;
    apply_gradient(runs_[i].student_panel);
    if (!call_->keep_logits) z_.restart(rows);  // its memory holds gradients now
  }
}

void LossBlock::compute(const ColumnRun& run) {
  z_.compute(*call_, hidden_, run.student_panel);
  if (teacher_hidden_.defined() && run.shared) u_.compute(*call_, teacher_hidden_, run.teacher_panel);
}

void LossBlock::scan(std::int64_t r, const ColumnRun& run) {
  RowState& state = states_[static_cast<std::size_t>(r)];
  if (run.shared && call_->teacher == LossTerms::Teacher::top_k_rest) {
    return call_->loss->scan_outside(state, columns(r, run), z_.at(run.student_panel, r, run.first));
  }
  if (run.shared) return call_->loss->scan(state, columns(r, run));
  call_->loss->scan_rest(state, {z_.at(run.student_panel, r, run.first), nullptr, run.count});
}

void LossBlock::mix(std::int64_t r, const ColumnRun& run) {
  if (run.shared) call_->loss->mix(states_[static_cast<std::size_t>(r)], columns(r, run));
}

RowLoss::Columns LossBlock::columns(std::int64_t r, const ColumnRun& run) {
  RowLoss::Columns columns;
  columns.first = call_->first + run.first;
  columns.segment.count = run.count;
  columns.segment.z = z_.at(run.student_panel, r, run.first);
  if (call_->teacher != LossTerms::Teacher::dense) return columns;
  if (teacher_hidden_.defined()) {
    columns.segment.u = u_.at(run.teacher_panel, r, run.first);
    return columns;
  }
  const Tensor logits = row(call_->head->teacher_logits, r);
  if (logits.dtype() == DType::f32) {
    columns.segment.u = logits.data<float>() + run.first;
  } else {
    call_->pointwise->cast({logits.data<bfloat16>() + run.first, true}, {teacher_row_, false}, run.count);
    columns.segment.u = teacher_row_;
  }
  return columns;
}

void LossBlock::gradient(std::int64_t r, const ColumnRun& run) {
  float* dz = z_.at(run.student_panel, r, run.first);
  const RowState& state = states_[static_cast<std::size_t>(r)];
  RowLoss::Columns at = run.shared ? columns(r, run) : RowLoss::Columns{.segment = {dz, nullptr, run.count}};
  if (capped_row_ != nullptr) {
    std::copy_n(dz, run.count, capped_row_);
    at.segment.z = capped_row_;
  }
  if (run.shared) {
    call_->loss->gradient(state, at, dz);
  } else {
    call_->loss->rest_gradient(state, at.segment, dz);
  }
  if (capped_row_ == nullptr) return;
  call_->pointwise->softcap_backward(capped_row_, static_cast<float>(call_->head->student.softcap), dz, run.count);
}

void LossBlock::apply_gradient(int panel_index) {
  const CrossEntropyHead& student = call_->head->student;
  const PanelRange range = z_.range(panel_index);
  Tensor dz = z_.tensor(panel_index);
  if (rounded_.defined()) {
    const Tensor rounded(rounded_.raw(), DType::bf16, dz.shape());
    call_->pointwise->cast({dz.raw(), false}, {rounded.raw(), true}, dz.elements());
    dz = rounded;
  }
  if (dhidden_.defined()) {
    call_->products->linear_backward_input_panel(dz, *student.head_backward, panel_index, dhidden_, panel_index > 0);
  }
  if (student.dhead.defined()) {
    call_->products->linear_backward_weight(dz, hidden_, student.dhead.row_slice(range.first, range.count), Tensor());
  }
}

Tensor LossBlock::row(const Tensor& tensor, std::int64_t r) const {
  return tensor.row_slice(rows_[static_cast<std::size_t>(r)], 1);
}

Tensor LossBlock::gathered(const Tensor& from, const Tensor& memory) const {
  const auto count = static_cast<std::int64_t>(rows_.size());
  if (contiguous_) return from.row_slice(rows_.front(), count);
  const Tensor to = memory.row_slice(0, count);
  for (std::int64_t r = 0; r < count; ++r) {
    const Tensor source = row(from, r);
    std::memcpy(to.row_slice(r, 1).raw(), source.raw(), source.bytes());
  }
  return to;
}

void LossBlock::choose_dhidden() {
  const Tensor& dhidden = call_->head->student.dhidden;
  if (!dhidden.defined() || runs_.empty()) return;
  const auto count = static_cast<std::int64_t>(rows_.size());
  // Several panels add up in f32: adding to bf16 would round once per panel.
  const bool direct = contiguous_ && (dhidden.dtype() == DType::f32 || z_.used_panels() == 1);
  dhidden_ = direct ? dhidden.row_slice(rows_.front(), count) : dhidden_memory_.row_slice(0, count);
}

void LossBlock::write_dhidden() const {
  const Tensor& dhidden = call_->head->student.dhidden;
  if (!dhidden.defined() || dhidden_.raw() != dhidden_memory_.raw()) return;
  const bool bf16 = dhidden.dtype() == DType::bf16;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const auto i = static_cast<std::int64_t>(r);
    call_->pointwise->cast({dhidden_.row_slice(i, 1).raw(), false}, {row(dhidden, i).raw(), bf16}, dhidden.columns());
  }
}

}  // namespace maestro::cpu
