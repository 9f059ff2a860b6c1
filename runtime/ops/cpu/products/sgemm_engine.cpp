// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/products/sgemm_engine.hpp"

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/ops/cpu/products/plain_panel.hpp"
#include "runtime/ops/cpu/thread.hpp"

namespace maestro::cpu {

namespace {

/// Rows of a block in `multiply`: with typical widths, operands and result stay in the L2 cache from product to
/// epilogue, and sgemm reaches its best speed from 64 rows up.
constexpr std::int64_t multiply_rows = 128;
/// Rows widened at once, and multiplied with each arranged block of a weight: arranging then costs a few percent.
constexpr std::int64_t arranged_rows = 1024;
/// Elements of an arranged block: 1 MiB, about an L2 cache.
constexpr std::int64_t arranged_elements = std::int64_t{1} << 18;
constexpr std::int64_t fewest_columns = 192;  ///< columns of a block; with fewer, sgemm's copies cost more
/// Rows widened at once for weight gradients, for few passes over dw.
constexpr std::int64_t gradient_rows = 1024;

/// Returns a stride that is an odd number of cache lines: rows a multiple of 4 KiB apart cost sgemm up to a third of
/// its speed.
std::int64_t odd_lines(std::int64_t columns) {
  const std::int64_t lines = (columns + 15) / 16;
  return (lines % 2 == 0 ? lines + 1 : lines) * 16;
}

struct Gemm {
  char transpose_a = 'N';
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const float* a = nullptr;
  std::int64_t a_stride = 0;
  const float* b = nullptr;
  std::int64_t b_stride = 0;
  bool accumulate = false;
  float* c = nullptr;
  std::int64_t c_stride = 0;
};

void run(const Gemm& g) {
  const dnnl_status_t status = dnnl_sgemm(g.transpose_a, 'N', g.m, g.n, g.k, 1.0F, g.a, g.a_stride, g.b, g.b_stride,
                                          g.accumulate ? 1.0F : 0.0F, g.c, g.c_stride);
  if (status == dnnl_success) return;
  throw JobError("oneDNN sgemm of (" + std::to_string(g.m) + ", " + std::to_string(g.k) + ") and (" +
                     std::to_string(g.k) + ", " + std::to_string(g.n) + ") failed with status " +
                     std::to_string(static_cast<int>(status)),
                 ErrorCode::internal);
}

/// Calls body(first, count) for blocks of nearly equal size, which leaves no small block over.
template <class Body>
void for_row_blocks(std::int64_t rows, std::int64_t most, Body body) {
  const std::int64_t blocks = (rows + most - 1) / most;
  const std::int64_t step = ((rows + blocks - 1) / blocks + 7) / 8 * 8;
  for (std::int64_t first = 0; first < rows; first += step) body(first, std::min(step, rows - first));
}

/// Widens the rows of `from`, bf16, into rows `stride` elements apart.
void widen(const PointwiseKernels& kernels, const Matrix& from, float* to, std::int64_t stride) {
  if (from.stride == from.columns && stride == from.columns) {
    return kernels.cast({from.data, true}, {to, false}, from.rows * from.columns);
  }
  for (std::int64_t row = 0; row < from.rows; ++row) {
    kernels.cast({from.row_slice(row, 1).data, true}, {to + row * stride, false}, from.columns);
  }
}

/// Returns `m` as f32: itself, or widened into `to` (rows, columns).
Matrix widened(const PointwiseKernels& kernels, const Matrix& m, float* to) {
  if (m.dtype == DType::f32) return m;
  widen(kernels, m, to, m.columns);
  return {to, DType::f32, m.rows, m.columns, m.columns};
}

std::int64_t block_columns(std::int64_t depth) {
  return std::max(fewest_columns, arranged_elements / depth / 64 * 64);
}

}  // namespace

/// A product's right operand as sgemm takes it, a block of its columns at a time.
class SgemmEngine::RightOperand {
 public:
  /// The operand is the panel, or transposed for PackFor::forward.
  RightOperand(const SgemmEngine& engine, const PlainPanel& panel, PackFor use, ScratchPool::Lease& scratch)
      : engine_(engine), panel_(panel), transposed_(use == PackFor::forward) {
    const Matrix plain = panel.matrix();
    const std::int64_t columns = transposed_ ? plain.rows : plain.columns;
    depth_ = transposed_ ? plain.columns : plain.rows;
    const bool spread = plain.stride % 1024 != 0;  // rows are not a multiple of 4 KiB apart
    as_it_lies_ = !transposed_ && plain.dtype == DType::f32 && spread;
    step_ = as_it_lies_ ? columns : std::min(columns, block_columns(depth_));
    if (!as_it_lies_) arranged_ = scratch.floats(depth_ * odd_lines(step_));
  }
  [[nodiscard]] std::int64_t depth() const { return depth_; }
  [[nodiscard]] std::int64_t step() const { return step_; }
  /// Returns columns [first, first + count), (depth, count) f32; valid until the next call.
  [[nodiscard]] Matrix columns(std::int64_t first, std::int64_t count) const {
    const Matrix plain = panel_.matrix();
    if (as_it_lies_) return plain;
    const Matrix to{arranged_, DType::f32, depth_, count, odd_lines(count)};
    const bool narrow = plain.dtype == DType::bf16;
    if (transposed_) {
      const Matrix rows = plain.row_slice(first, count);
      engine_.matrix_.transpose({{rows.data, narrow}, rows.stride, arranged_, to.stride, count, rows.columns});
      return to;
    }
    copy(plain.column_slice(first, count), to);
    return to;
  }

 private:
  void copy(const Matrix& from, const Matrix& to) const {
    if (from.dtype == DType::bf16) return widen(engine_.pointwise_, from, arranged_, to.stride);
    for (std::int64_t row = 0; row < from.rows; ++row) {
      std::copy_n(static_cast<const float*>(from.row_slice(row, 1).data), from.columns, arranged_ + row * to.stride);
    }
  }
  const SgemmEngine& engine_;
  const PlainPanel& panel_;
  bool transposed_;
  std::int64_t depth_ = 0;
  bool as_it_lies_;
  std::int64_t step_;
  float* arranged_ = nullptr;
};

SgemmEngine::SgemmEngine(Isa isa, bool round_weights, ScratchPool& scratch)
    : matrix_(matrix_kernels(isa)),
      pointwise_(pointwise_kernels(isa)),
      round_weights_(round_weights),
      scratch_(scratch) {}

std::unique_ptr<PackedPanel> SgemmEngine::pack(const Tensor& w, PackFor /*use*/,
                                               std::unique_ptr<PackedPanel> reuse) const {
  const std::size_t copied = round_weights_ ? static_cast<std::size_t>(w.elements()) * sizeof(bfloat16) : 0;
  if (reuse == nullptr) reuse = std::make_unique<PlainPanel>(w.rows(), w.columns(), copied);
  auto& panel = static_cast<PlainPanel&>(*reuse);
  if (round_weights_) {
    pointwise_.cast({w.raw(), false}, {panel.copy(), true}, w.elements());
  } else {
    panel.view(w.raw());
  }
  return reuse;
}

/// Reads the weights once and in order, at the speed of memory; sgemm would transpose them first.
void SgemmEngine::multiply_each(const Matrix& in, const PackedPanel& right, const Matrix& out,
                                const Epilogue& epilogue) const {
  const auto& panel = static_cast<const PlainPanel&>(right);
  const Matrix weights = panel.matrix();
  assert(in.columns == weights.columns && out.columns == weights.rows && in.rows == out.rows);
  ScratchPool::Lease scratch = scratch_.lease();
  const bool narrow = in.dtype == DType::bf16;
  const Matrix rows = widened(pointwise_, in, narrow ? scratch.floats(in.rows * in.columns) : nullptr);
  const Matrix sums = Matrix::of(scratch.tensor({out.rows, out.columns}, DType::f32));
  matrix_.row_dots({.rows = static_cast<const float*>(rows.data),
                    .row_count = in.rows,
                    .row_stride = rows.stride,
                    .weights = {weights.data, weights.dtype == DType::bf16},
                    .stride = weights.stride,
                    .depth = in.columns,
                    .count = out.columns,
                    .to = static_cast<float*>(sums.data)});
  finish_rows(matrix_, sums, out, epilogue);
}

void SgemmEngine::multiply(const Matrix& in, const PackedPanel& right, PackFor use, const Matrix& out,
                           const Epilogue& epilogue) const {
  stay_on_this_thread();
  if (in.rows == 1 && use == PackFor::forward) return multiply_each(in, right, out, epilogue);
  ScratchPool::Lease scratch = scratch_.lease();
  const RightOperand operand(*this, static_cast<const PlainPanel&>(right), use, scratch);
  assert(in.columns == operand.depth() && in.rows == out.rows);
  const std::int64_t widest = std::min(in.rows, arranged_rows + 8);
  float* wide_in = in.dtype == DType::bf16 ? scratch.floats(widest * in.columns) : nullptr;
  float* wide_out = out.dtype == DType::bf16 ? scratch.floats((multiply_rows + 8) * operand.step()) : nullptr;
  for_row_blocks(in.rows, arranged_rows, [&](std::int64_t first_row, std::int64_t row_count) {
    const Matrix a = widened(pointwise_, in.row_slice(first_row, row_count), wide_in);
    for (std::int64_t first = 0; first < out.columns; first += operand.step()) {
      const std::int64_t count = std::min(operand.step(), out.columns - first);
      const Matrix b = operand.columns(first, count);
      Epilogue of_block = epilogue;
      if (epilogue.bias != nullptr) of_block.bias += first;
      for_row_blocks(row_count, multiply_rows, [&](std::int64_t row, std::int64_t rows) {
        multiply_block(a.row_slice(row, rows), b, out.column_slice(first, count).row_slice(first_row + row, rows),
                       of_block, wide_out);
      });
    }
  });
}

void SgemmEngine::multiply_block(const Matrix& a, const Matrix& b, const Matrix& to, const Epilogue& epilogue,
                                 float* wide_out) const {
  const bool narrow = to.dtype == DType::bf16;
  float* c = narrow ? wide_out : static_cast<float*>(to.data);
  const std::int64_t c_stride = narrow ? to.columns : to.stride;
  run({.m = a.rows,
       .n = to.columns,
       .k = a.columns,
       .a = static_cast<const float*>(a.data),
       .a_stride = a.stride,
       .b = static_cast<const float*>(b.data),
       .b_stride = b.stride,
       .accumulate = epilogue.accumulate && !narrow,
       .c = c,
       .c_stride = c_stride});
  if (!narrow && epilogue.bias == nullptr && !epilogue.activation) return;
  matrix_.epilogue({c,
                    c_stride,
                    {to.data, narrow},
                    to.stride,
                    a.rows,
                    to.columns,
                    epilogue.bias,
                    epilogue.activation,
                    epilogue.accumulate && narrow});
}

void SgemmEngine::copy_column(const PackedPanel& right, std::int64_t column, float* to) const {
  const auto& panel = static_cast<const PlainPanel&>(right);
  const Matrix row = panel.matrix().row_slice(column, 1);
  pointwise_.cast({row.data, row.dtype == DType::bf16}, {to, false}, row.columns);
}

void SgemmEngine::add_outer_products(const Tensor& dy, const Tensor& x, const Tensor& dw) const {
  stay_on_this_thread();
  const std::int64_t block = std::min(dy.rows(), gradient_rows + 8);
  ScratchPool::Lease scratch = scratch_.lease();
  float* wide_dy = dy.dtype() == DType::bf16 ? scratch.floats(block * dy.columns()) : nullptr;
  float* wide_x = x.dtype() == DType::bf16 ? scratch.floats(block * x.columns()) : nullptr;
  for_row_blocks(dy.rows(), gradient_rows, [&](std::int64_t first, std::int64_t count) {
    const Matrix left = widened(pointwise_, Matrix::of(dy).row_slice(first, count), wide_dy);
    const Matrix right = widened(pointwise_, Matrix::of(x).row_slice(first, count), wide_x);
    run({.transpose_a = 'T',
         .m = dy.columns(),
         .n = x.columns(),
         .k = count,
         .a = static_cast<const float*>(left.data),
         .a_stride = left.stride,
         .b = static_cast<const float*>(right.data),
         .b_stride = right.stride,
         .accumulate = true,
         .c = dw.data<float>(),
         .c_stride = x.columns()});
  });
}

}  // namespace maestro::cpu
