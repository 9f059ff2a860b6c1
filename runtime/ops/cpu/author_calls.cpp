// SPDX-License-Identifier: Apache-2.0
// CpuOperatorTable's operators for section authors.
#include <algorithm>
#include <cassert>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/cpu/operands.hpp"
#include "runtime/ops/cpu/pointwise/author_kernels.hpp"
#include "runtime/ops/memory_math.hpp"

namespace maestro::cpu {

namespace {

void memory_gate(const MemoryGate& op) {
  assert(op.scores.elements() == op.gate.elements());
  const auto factor = static_cast<float>(op.factor);
  std::ranges::transform(op.scores.span<float>(), op.gate.data<float>(),
                         [=](float score) { return element::MemoryGate::value(score * factor); });
}

void memory_gate_backward(const MemoryGateBackward& op) {
  assert(op.scores.elements() == op.dgate.elements() && op.dscores.elements() == op.dgate.elements());
  const auto factor = static_cast<float>(op.factor);
  std::ranges::transform(op.dgate.span<float>(), op.scores.span<float>(), op.dscores.data<float>(),
                         [=](float d, float score) { return d * factor * element::MemoryGate::slope(score * factor); });
}

LossSums sum_of(const Tensor& values) {
  LossSums sums;
  for (const float value : values.span<float>()) sums.total += value;
  sums.ce = sums.total;
  sums.tokens = values.elements();
  return sums;
}

}  // namespace

void CpuOperatorTable::run(const Scale& op) const {
  assert(op.x.elements() == op.y.elements());
  author_kernels(isa_).scale(in(op.x), static_cast<float>(op.factor), out(op.y), op.x.elements());
}

void CpuOperatorTable::run(const Multiply& op) const {
  assert(op.a.elements() == op.out.elements());
  if (op.b.elements() == op.a.elements()) {
    return author_kernels(isa_).multiply(in(op.a), in(op.b), out(op.out), op.a.elements());
  }
  if (op.b.rows() == 1 && op.b.columns() == op.a.columns()) {
    return author_kernels(isa_).multiply_columns(in(op.a), in(op.b), out(op.out), op.a.rows(), op.a.columns());
  }
  assert(op.a.rows() == op.b.rows());
  assert(op.b.columns() == 1);
  author_kernels(isa_).multiply_rows(in(op.a), in(op.b), out(op.out), op.a.rows(), op.a.columns());
}

void CpuOperatorTable::run(const Curved& op) const {
  assert(op.x.elements() == op.y.elements());
  const AuthorKernels& kernels = author_kernels(isa_);
  const auto curve = op.curve == Curve::sigmoid ? kernels.sigmoid : kernels.tanh;
  curve(in(op.x), out(op.y), op.x.elements());
}

void CpuOperatorTable::run(const CurvedBackward& op) const {
  assert(op.dy.elements() == op.y.elements() && op.dx.elements() == op.y.elements());
  const AuthorKernels& kernels = author_kernels(isa_);
  const auto backward = op.curve == Curve::sigmoid ? kernels.sigmoid_backward : kernels.tanh_backward;
  backward(in(op.dy), in(op.y), out(op.dx), op.y.elements());
}

void CpuOperatorTable::run(const MemoryGate& op) const {
  memory_gate(op);
}
void CpuOperatorTable::run(const MemoryGateBackward& op) const {
  memory_gate_backward(op);
}

void CpuOperatorTable::run(const Softmax& op) const {
  assert(op.x.elements() == op.y.elements());
  if (op.x.elements() == 0) return;
  author_kernels(isa_).softmax(in(op.x), op.y.data<float>(), op.x.rows(), op.x.columns(), op.log);
}

void CpuOperatorTable::run(const SoftmaxBackward& op) const {
  assert(op.dy.dtype() == DType::f32 && op.y.dtype() == DType::f32 && op.dx.elements() == op.y.elements());
  const AuthorKernels& kernels = author_kernels(isa_);
  const auto backward = op.log ? kernels.log_softmax_backward : kernels.softmax_backward;
  backward(in(op.dy), in(op.y), out(op.dx), op.y.rows(), op.y.columns());
}

void CpuOperatorTable::run(const RowDot& op) const {
  assert(op.a.elements() == op.b.elements() && op.y.elements() == op.a.rows());
  author_kernels(isa_).row_dot(in(op.a), in(op.b), op.y.data<float>(), op.a.rows(), op.a.columns());
}

void CpuOperatorTable::run(const Cosine& op) const {
  assert(op.a.elements() == op.b.elements() && op.lengths.elements() == 2 * op.a.rows());
  author_kernels(isa_).cosine(in(op.a), in(op.b), op.y.data<float>(), op.lengths.data<float>(), op.a.rows(),
                              op.a.columns(), static_cast<float>(op.epsilon));
}

void CpuOperatorTable::run(const CosineBackward& op) const {
  author_kernels(isa_).cosine_backward({.dy = op.dy.data<float>(),
                                        .a = in(op.a),
                                        .b = in(op.b),
                                        .y = op.y.data<float>(),
                                        .lengths = op.lengths.data<float>(),
                                        .da = out(op.da),
                                        .db = out(op.db),
                                        .rows = op.a.rows(),
                                        .columns = op.a.columns(),
                                        .epsilon = static_cast<float>(op.epsilon)});
}

void CpuOperatorTable::run(const CopyColumns& op) const {
  assert(op.from.rows() == op.to.rows() && op.from_column + op.columns <= op.from.columns());
  assert(op.to_column + op.columns <= op.to.columns());
  const auto part = [&op](const Tensor& of, std::int64_t row, std::int64_t column) {
    return of.row_slice(row, 1).flat_slice(column, op.columns);
  };
  for (std::int64_t row = 0; row < op.from.rows(); ++row) {
    const Tensor from = part(op.from, row, op.from_column);
    const Tensor to = part(op.to, row, op.to_column);
    op.accumulate ? run(Add{.a = to, .b = from, .out = to}) : run(Cast{.from = from, .to = to});
  }
}

Pending<LossSums> CpuOperatorTable::run(const SumLoss& op) const {
  return sum_of(op.values);
}

void CpuOperatorTable::run(const Custom& op) const {
  if (op.op->cpu == nullptr) {
    throw JobError("operator '" + std::string(op.op->name) + "' has no function for CPUs", ErrorCode::unavailable);
  }
  op.op->cpu(op);
}

}  // namespace maestro::cpu
