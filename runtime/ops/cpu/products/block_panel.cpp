// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/products/block_panel.hpp"

#include <algorithm>

namespace maestro::cpu {

namespace {

/// Elements that are widened at once: 1 MiB, about an L2 cache, but at least the rows that an engine needs.
constexpr std::int64_t widened_elements = std::int64_t{1} << 18;
constexpr std::int64_t fewest_rows = 192;

/// Calls body(first, widened rows (count, K) f32) for some rows after the others.
template <class Body>
void for_widened(const BlockProducts& by, const Mxfp4Rows& right, Body body) {
  const std::int64_t step = std::min(right.rows, std::max(fewest_rows, widened_elements / right.columns / 64 * 64));
  ScratchPool::Lease scratch = by.scratch.lease();
  float* const wide = scratch.floats(step * right.columns);
  for (std::int64_t first = 0; first < right.rows; first += step) {
    const std::int64_t count = std::min(step, right.rows - first);
    const Mxfp4Rows rows = right.row_slice(first, count);
    by.kernels.widen_blocks({rows.blocks, rows.scales, count * rows.row_blocks(), wide});
    body(first, Tensor(reinterpret_cast<std::byte*>(wide), DType::f32, Shape{count, right.columns}));
  }
}

}  // namespace

BlockPanel::BlockPanel(const Mxfp4Rows& rows)
    : blocks_(rows.blocks, rows.blocks + rows.rows * rows.row_blocks() * mxfp4_bytes),
      scales_(rows.scales, rows.scales + rows.rows * rows.row_blocks()),
      rows_{blocks_.data(), scales_.data(), rows.rows, rows.columns} {}

void multiply_blocks(const BlockProducts& by, const Matrix& in, const Mxfp4Rows& right, const Matrix& out, bool each) {
  for_widened(by, right, [&](std::int64_t first, const Tensor& rows) {
    const auto panel = by.engine.pack(rows, PackFor::forward, nullptr);
    const Matrix to = out.column_slice(first, rows.rows());
    each ? by.engine.multiply_each(in, *panel, to, {}) : by.engine.multiply(in, *panel, PackFor::forward, to, {});
  });
}

void multiply_blocks_backward(const BlockProducts& by, const Matrix& in, const Mxfp4Rows& right, const Matrix& out) {
  ScratchPool::Lease scratch = by.scratch.lease();
  const Matrix sums = Matrix::of(scratch.tensor({out.rows, out.columns}, DType::f32));
  for_widened(by, right, [&](std::int64_t first, const Tensor& rows) {
    const auto panel = by.engine.pack(rows, PackFor::backward_input, nullptr);
    by.engine.multiply(in.column_slice(first, rows.rows()), *panel, PackFor::backward_input, sums,
                       {.accumulate = first > 0});
  });
  finish_rows(by.kernels, sums, out, {});
}

}  // namespace maestro::cpu
