// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/experts/grouped_bias.cuh"

#include "runtime/ops/cuda/kernels.hpp"
#include "runtime/ops/cuda/launch_rows.cuh"

namespace maestro::cuda {

namespace {

GroupRows group_rows(const Tensor& offsets) {
  return {offsets.data<std::int32_t>(), static_cast<int>(offsets.elements() - 1)};
}

}  // namespace

void grouped_bias(const Launch& at, const GroupedBias& op) {
  const std::int64_t columns = op.y.columns();
  assert(op.bias.columns() == columns && op.offsets.elements() == op.bias.rows() + 1);
  with_type(op.y.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    launch_rows(at, "grouped_bias", op.y.rows(), columns,
                BiasedRows<T>{group_rows(op.offsets), op.bias.data<float>(), data_of<float>(op.weights), op.y.data<T>(),
                              static_cast<int>(columns)});
  });
}

void grouped_bias_backward(const Launch& at, const GroupedBiasBackward& op) {
  const std::int64_t columns = op.dy.columns();
  assert(op.bias.columns() == columns && op.offsets.elements() == op.bias.rows() + 1);
  const GroupRows rows = group_rows(op.offsets);
  with_type(op.dy.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    if (op.dbias.defined()) {
      launch_rows(at, "grouped_bias_backward", rows.groups, columns,
                  BiasGradients<T>{rows, op.dy.data<T>(), data_of<float>(op.weights), op.dbias.data<float>(),
                                   static_cast<int>(columns)});
    }
    if (!op.dweights.defined()) return;
    launch_rows(at, "bias_weights_backward", op.dy.rows(), 1,
                WeightGradients<T>{rows, op.dy.data<T>(), op.bias.data<float>(), op.dweights.data<float>(),
                                   static_cast<int>(columns)});
  });
}

}  // namespace maestro::cuda
