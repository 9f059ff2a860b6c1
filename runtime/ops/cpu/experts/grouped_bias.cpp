// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/experts/grouped_bias.hpp"

#include <cassert>

#include "runtime/ops/cpu/operands.hpp"
#include "runtime/ops/cpu/pointwise/author_kernels.hpp"
#include "runtime/ops/cpu/pointwise/pointwise_kernels.hpp"

namespace maestro::cpu {

namespace {

/// Calls body(row, weight of the row, first column of the group's bias) for all rows in order.
template <class Op, class Body>
void for_biased_rows(const Op& op, const Tensor& rows, Body body) {
  const std::span<const std::int32_t> offsets = op.offsets.template span<std::int32_t>();
  assert(std::ssize(offsets) == op.bias.rows() + 1 && offsets.back() == rows.rows());
  assert(op.bias.columns() == rows.columns() && (!op.weights.defined() || op.weights.elements() == rows.rows()));
  const float* weights = op.weights.defined() ? op.weights.template data<float>() : nullptr;
  std::int64_t bias = 0;
  for (std::size_t group = 0; group + 1 < offsets.size(); ++group, bias += rows.columns()) {
    for (std::int64_t row = offsets[group]; row < offsets[group + 1]; ++row) {
      body(row, weights == nullptr ? 1.0F : weights[row], bias);
    }
  }
}

}  // namespace

void grouped_bias(Isa isa, ScratchPool& pool, const GroupedBias& op) {
  const PointwiseKernels& kernels = pointwise_kernels(isa);
  const std::int64_t columns = op.y.columns();
  ScratchPool::Lease scratch = pool.lease();
  float* wide = op.y.dtype() == DType::bf16 ? scratch.floats(columns) : nullptr;
  for_biased_rows(op, op.y, [&](std::int64_t row, float weight, std::int64_t bias) {
    const Tensor y = op.y.row_slice(row, 1);
    float* sum = wide == nullptr ? y.data<float>() : wide;
    if (wide != nullptr) kernels.cast(in(y), {wide, false}, columns);
    kernels.add_scaled(op.bias.data<float>() + bias, weight, sum, columns);
    if (wide != nullptr) kernels.cast({wide, false}, out(y), columns);
  });
}

void grouped_bias_backward(Isa isa, ScratchPool& pool, const GroupedBiasBackward& op) {
  const PointwiseKernels& kernels = pointwise_kernels(isa);
  const std::int64_t columns = op.dy.columns();
  ScratchPool::Lease scratch = pool.lease();
  float* wide = scratch.floats(columns);
  for_biased_rows(op, op.dy, [&](std::int64_t row, float weight, std::int64_t bias) {
    const In dy = in(op.dy.row_slice(row, 1));
    if (op.dbias.defined()) {
      kernels.cast(dy, {wide, false}, columns);
      kernels.add_scaled(wide, weight, op.dbias.data<float>() + bias, columns);
    }
    if (!op.dweights.defined()) return;
    float dot = 0;
    author_kernels(isa).row_dot(dy, {op.bias.data<float>() + bias, false}, &dot, 1, columns);
    op.dweights.data<float>()[row] += dot;
  });
}

}  // namespace maestro::cpu
