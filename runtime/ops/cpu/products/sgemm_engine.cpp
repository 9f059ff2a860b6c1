// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/products/sgemm_engine.hpp"

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/core/result.hpp"
#include "runtime/ops/cpu/thread.hpp"

namespace maestro::cpu {

namespace {

/// Rows of a block of `multiply`: operands and result of typical widths stay in the second-level cache from conversion
/// to epilogue, and sgemm is at its best from 64 rows up.
constexpr std::int64_t multiply_rows = 128;
/// Rows widened at once for weight gradients: few passes over dw.
constexpr std::int64_t gradient_rows = 1024;

class F32Panel final : public PackedPanel {
 public:
  F32Panel(std::int64_t depth, std::int64_t columns)
      : depth_(depth),
        columns_(columns),
        stride_(odd_lines(columns)),
        memory_(static_cast<std::size_t>(depth * stride_) * sizeof(float)) {}
  [[nodiscard]] std::size_t bytes() const override { return memory_.size(); }
  [[nodiscard]] std::int64_t depth() const { return depth_; }
  [[nodiscard]] std::int64_t columns() const { return columns_; }
  [[nodiscard]] std::int64_t stride() const { return stride_; }
  [[nodiscard]] float* data() const { return reinterpret_cast<float*>(memory_.data()); }

 private:
  /// Rows an odd number of cache lines apart: rows a multiple of 4 KiB apart cost sgemm up to a third of its speed.
  static std::int64_t odd_lines(std::int64_t columns) {
    const std::int64_t lines = (columns + 15) / 16;
    return (lines % 2 == 0 ? lines + 1 : lines) * 16;
  }
  std::int64_t depth_;
  std::int64_t columns_;
  std::int64_t stride_;
  AlignedMemory memory_;
};

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

/// Calls body(first, count) for blocks of nearly equal size, so that no small block is left over.
template <class Body>
void for_row_blocks(std::int64_t rows, std::int64_t most, Body body) {
  const std::int64_t blocks = (rows + most - 1) / most;
  const std::int64_t step = ((rows + blocks - 1) / blocks + 7) / 8 * 8;
  for (std::int64_t first = 0; first < rows; first += step) body(first, std::min(step, rows - first));
}

/// Returns `m` as f32: itself, or widened into `to` (rows, columns).
Matrix widened(const PointwiseKernels& kernels, const Matrix& m, float* to) {
  if (m.dtype == DType::f32) return m;
  const Matrix wide{to, DType::f32, m.rows, m.columns, m.columns};
  if (m.stride == m.columns) {
    kernels.cast({m.data, true}, {to, false}, m.rows * m.columns);
    return wide;
  }
  for (std::int64_t row = 0; row < m.rows; ++row) {
    kernels.cast({m.row_slice(row, 1).data, true}, {to + row * m.columns, false}, m.columns);
  }
  return wide;
}

}  // namespace

SgemmEngine::SgemmEngine(Isa isa, bool round_weights, ScratchPool& scratch)
    : matrix_(matrix_kernels(isa)),
      pointwise_(pointwise_kernels(isa)),
      round_weights_(round_weights),
      scratch_(scratch) {}

std::unique_ptr<PackedPanel> SgemmEngine::pack(const Tensor& w, PackFor use, std::unique_ptr<PackedPanel> reuse) const {
  const std::int64_t rows = w.rows();
  const std::int64_t columns = w.columns();
  const bool forward = use == PackFor::forward;
  if (reuse == nullptr)
    reuse = forward ? std::make_unique<F32Panel>(columns, rows) : std::make_unique<F32Panel>(rows, columns);
  const auto& panel = static_cast<const F32Panel&>(*reuse);
  const float* from = w.data<float>();
  if (forward) {
    matrix_.transpose({from, columns, panel.data(), panel.stride(), rows, columns, round_weights_});
    return reuse;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* source = from + row * columns;
    float* to = panel.data() + row * panel.stride();
    if (round_weights_) {
      matrix_.round_to_bf16(source, to, columns);
    } else {
      std::copy_n(source, columns, to);
    }
  }
  return reuse;
}

void SgemmEngine::multiply(const Matrix& in, const PackedPanel& right, const Matrix& out,
                           const Epilogue& epilogue) const {
  stay_on_this_thread();
  const auto& panel = static_cast<const F32Panel&>(right);
  assert(in.columns == panel.depth() && out.columns == panel.columns() && in.rows == out.rows);
  const std::int64_t block = std::min(in.rows, multiply_rows + 8);
  const bool narrow = out.dtype == DType::bf16;
  ScratchPool::Lease scratch = scratch_.lease();
  float* wide_in = in.dtype == DType::bf16 ? scratch.floats(block * in.columns) : nullptr;
  float* wide_out = narrow ? scratch.floats(block * out.columns) : nullptr;
  const bool finish = narrow || epilogue.bias != nullptr || epilogue.activation != Activation::none;
  for_row_blocks(in.rows, multiply_rows, [&](std::int64_t first, std::int64_t count) {
    const Matrix a = widened(pointwise_, in.row_slice(first, count), wide_in);
    const Matrix to = out.row_slice(first, count);
    float* c = narrow ? wide_out : static_cast<float*>(to.data);
    const std::int64_t c_stride = narrow ? out.columns : out.stride;
    run({.m = count,
         .n = out.columns,
         .k = in.columns,
         .a = static_cast<const float*>(a.data),
         .a_stride = a.stride,
         .b = panel.data(),
         .b_stride = panel.stride(),
         .accumulate = epilogue.accumulate && !narrow,
         .c = c,
         .c_stride = c_stride});
    if (!finish) return;
    matrix_.epilogue({c,
                      c_stride,
                      {to.data, narrow},
                      to.stride,
                      count,
                      out.columns,
                      epilogue.bias,
                      epilogue.activation == Activation::gelu,
                      epilogue.accumulate && narrow});
  });
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
