// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/products/dot_engine.hpp"

#include <algorithm>
#include <cassert>

#include "runtime/ops/cpu/products/dot_product_kernel.hpp"
#include "runtime/ops/cpu/products/outer_product_kernel.hpp"
#include "runtime/ops/cpu/products/plain_panel.hpp"

namespace maestro::cpu {

namespace {

/// Rows whose sums wait for the operations after the product: 48 columns of them fit the second-level cache.
constexpr std::int64_t finished_rows = 256;

const std::uint16_t* bits_of(const void* bf16) {
  return static_cast<const std::uint16_t*>(bf16);
}

}  // namespace

DotEngine::DotEngine(ScratchPool& scratch)
    : kernels_(matrix_kernels(Isa::avx512)), scratch_(scratch), plain_(Isa::avx512, true, scratch) {}

void DotEngine::multiply(const Matrix& in, const PackedPanel& right, PackFor use, const Matrix& out,
                         const Epilogue& epilogue) const {
  const bool transposed = use == PackFor::forward;
  if (in.rows == 1 && transposed) return multiply_each(in, right, out, epilogue);
  const Matrix weights = static_cast<const PlainPanel&>(right).matrix();
  assert(in.dtype == DType::bf16 && in.columns == (transposed ? weights.columns : weights.rows));
  assert(out.columns == (transposed ? weights.rows : weights.columns) && in.rows == out.rows);
  const bool rounds = out.dtype == DType::bf16;
  const bool direct = epilogue.bias == nullptr && !epilogue.activation && !(rounds && epilogue.accumulate);
  const std::int64_t step = direct ? in.rows : std::min(in.rows, finished_rows);
  ScratchPool::Lease scratch = scratch_.lease();
  float* const panel = scratch.floats(dot_panel_floats(in.columns));
  float* const sums = direct ? nullptr : scratch.floats(step * dot_panel_columns);
  for (std::int64_t first = 0; first < out.columns; first += dot_panel_columns) {
    const std::int64_t columns = std::min(dot_panel_columns, out.columns - first);
    const Matrix part = transposed ? weights.row_slice(first, columns) : weights.column_slice(first, columns);
    avx512_bf16::arrange_panel({bits_of(part.data), part.stride, transposed, in.columns, columns, panel});
    Epilogue finish = epilogue;
    if (finish.bias != nullptr) finish.bias += first;
    for (std::int64_t row = 0; row < in.rows; row += step) {
      const std::int64_t rows = std::min(step, in.rows - row);
      const Matrix to = out.row_slice(row, rows).column_slice(first, columns);
      avx512_bf16::multiply_panel({.in = bits_of(in.row_slice(row, rows).data),
                                   .in_stride = in.stride,
                                   .rows = rows,
                                   .panel = panel,
                                   .depth = in.columns,
                                   .columns = columns,
                                   .out = direct ? to.data : sums,
                                   .out_stride = direct ? to.stride : dot_panel_columns,
                                   .bf16 = direct && rounds,
                                   .accumulate = direct && epilogue.accumulate});
      if (!direct) finish_rows(kernels_, {sums, DType::f32, rows, columns, dot_panel_columns}, to, finish);
    }
  }
}

void DotEngine::add_outer_products(const Tensor& dy, const Tensor& x, const Tensor& dw) const {
  ScratchPool::Lease scratch = scratch_.lease();
  avx512_bf16::add_outer_products({.dy = bits_of(dy.raw()),
                                   .dy_stride = dy.columns(),
                                   .x = bits_of(x.raw()),
                                   .x_stride = x.columns(),
                                   .dw = dw.data<float>(),
                                   .rows = dy.rows(),
                                   .n = dy.columns(),
                                   .k = x.columns(),
                                   .dy_pairs = scratch.floats(outer_product_dy_floats),
                                   .x_pairs = scratch.floats(outer_product_x_floats(x.columns()))});
}

}  // namespace maestro::cpu
