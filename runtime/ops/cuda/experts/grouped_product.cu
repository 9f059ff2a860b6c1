// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/experts/grouped_product.cuh"

#include "runtime/ops/cuda/products/plain_weight.hpp"

namespace maestro::cuda {

namespace {

unsigned tiles(std::int64_t side) {
  return static_cast<unsigned>((side + plain_tile - 1) / plain_tile);
}

/// y = x times the matrices of `w`, G groups of (N, K).
void grouped_rows(const Launch& at, const Tensor& x, const PackedWeight& w, const Tensor& offsets, const Tensor& y,
                  bool backward) {
  const std::int64_t groups = offsets.elements() - 1, rows = x.rows();
  const PlainWeight& held = plain_weight(w);
  const Tensor& weight = held.tensor();
  assert((held.in_blocks() || weight.dtype() == x.dtype()) && x.dtype() == y.dtype() && weight.rows() % groups == 0);
  if (rows == 0) return;
  with_type(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const auto multiply = [&]<class Groups>(const Groups& matrices) {
      const GroupedRows<T, Groups> call{x.data<T>(),
                                        matrices,
                                        offsets.data<std::int32_t>(),
                                        y.data<T>(),
                                        weight.rows() / groups,
                                        weight.columns(),
                                        static_cast<int>(groups),
                                        backward};
      // Each group has at most one tile that is not full.
      const dim3 grid(tiles(rows) + static_cast<unsigned>(groups), tiles(y.columns()));
      launch({"grouped_rows", grid, dim3(plain_threads), 0, at.stream}, grouped_rows_kernel<T, Groups>, call);
    };
    if (held.in_blocks()) {
      return multiply(BlockGroups{held.blocks().data<std::uint8_t>(), held.scales().data<std::uint8_t>()});
    }
    multiply(PlainGroups<T>{weight.data<T>()});
  });
}

}  // namespace

void grouped_linear(const Launch& at, const GroupedLinear& op) {
  grouped_rows(at, op.x, *op.w, op.offsets, op.y, false);
}

void grouped_linear_backward_input(const Launch& at, const GroupedLinearBackwardInput& op) {
  grouped_rows(at, op.dy, *op.w, op.offsets, op.dx, true);
}

void grouped_linear_backward_weight(const Launch& at, const GroupedLinearBackwardWeight& op) {
  assert(op.dy.dtype() == op.x.dtype() && op.dw.columns() == op.x.columns());
  if (op.x.rows() == 0) return;
  with_type(op.x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const std::int64_t n = op.dy.columns(), k = op.x.columns();
    const GroupedWeights<T> call{
        op.dy.data<T>(), op.x.data<T>(), op.offsets.data<std::int32_t>(), op.dw.data<float>(), n, k};
    const dim3 grid(tiles(k), tiles(n), static_cast<unsigned>(op.offsets.elements() - 1));
    launch({"grouped_weights", grid, dim3(plain_threads), 0, at.stream}, grouped_weights_kernel<T>, call);
  });
}

}  // namespace maestro::cuda
