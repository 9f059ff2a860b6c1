// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/products/matmul.hpp"

#include <algorithm>
#include <cassert>

#include "runtime/ops/cpu/products/bf16_engine.hpp"
#include "runtime/ops/cpu/products/block_panel.hpp"
#include "runtime/ops/cpu/products/dot_engine.hpp"
#include "runtime/ops/cpu/products/sgemm_engine.hpp"

namespace maestro::cpu {

namespace {

std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

/// Returns the width of equal panels, rounded up to an odd multiple of 64.
std::int64_t panel_width(std::int64_t rows) {
  const std::int64_t blocks = divide_up(divide_up(rows, divide_up(rows, widest_panel)), 64);
  return (blocks % 2 == 0 ? blocks + 1 : blocks) * 64;
}

const CpuPackedWeight& own(const PackedWeight& weight, [[maybe_unused]] PackFor use) {
  const auto& packed = static_cast<const CpuPackedWeight&>(weight);
  assert(packed.serves(use));
  return packed;
}

}  // namespace

CpuPackedWeight::CpuPackedWeight(std::int64_t rows, std::int64_t columns, DType compute, PackFor use,
                                 std::int64_t groups)
    : rows_(rows),
      columns_(columns),
      compute_(compute),
      use_(use),
      panel_rows_(groups > 1 ? rows / groups : panel_width(rows)),
      panels_(static_cast<std::size_t>(divide_up(rows, panel_rows_))) {
  assert(rows > 0 && columns > 0);
}

std::size_t CpuPackedWeight::bytes() const {
  std::size_t sum = 0;
  for (const auto& panel : panels_) sum += panel->bytes();
  return sum;
}

bool CpuPackedWeight::serves(PackFor use) const {
  return use == use_ || (panels_.front() != nullptr && panels_.front()->for_every_use());
}

bool CpuPackedWeight::rows_readable() const {
  return serves(PackFor::forward) &&
         std::ranges::all_of(panels_, [](const auto& panel) { return panel->columns_readable(); });
}

PanelRange CpuPackedWeight::range(int panel) const {
  assert(panel >= 0 && panel < panels());
  const std::int64_t first = panel * panel_rows_;
  return {first, std::min(panel_rows_, rows_ - first)};
}

int panels(const PackedWeight& weight) {
  return static_cast<const CpuPackedWeight&>(weight).panels();
}
PanelRange panel(const PackedWeight& weight, int index) {
  return static_cast<const CpuPackedWeight&>(weight).range(index);
}

MatrixProducts::MatrixProducts(Isa isa, Bf16Products bf16, ScratchPool& scratch)
    : kernels_(matrix_kernels(isa)), scratch_(scratch), f32_(std::make_unique<SgemmEngine>(isa, false, scratch)) {
  if (bf16 == Bf16Products::native && fast_bf16_dots()) {
    bf16_ = std::make_unique<DotEngine>(scratch);
  } else if (bf16 == Bf16Products::native) {
    bf16_ = std::make_unique<Bf16Engine>(scratch, isa);
    bf16_packs_once_ = false;
  } else {
    bf16_ = std::make_unique<SgemmEngine>(isa, true, scratch);
  }
}

const ProductEngine& MatrixProducts::engine(DType compute) const {
  assert(compute == DType::f32 || compute == DType::bf16);
  return compute == DType::bf16 ? *bf16_ : *f32_;
}

std::unique_ptr<PackedWeight> MatrixProducts::pack(const Tensor& w, DType compute, PackFor use,
                                                   std::unique_ptr<PackedWeight> reuse, WeightGroup group) const {
  std::unique_ptr<CpuPackedWeight> packed(static_cast<CpuPackedWeight*>(reuse.release()));
  const std::int64_t rows = group.count * w.rows();
  const bool fits = packed != nullptr && packed->rows() == rows && packed->columns() == w.columns() &&
                    packed->compute() == compute && packed->serves(use);
  if (!fits) packed = std::make_unique<CpuPackedWeight>(rows, w.columns(), compute, use, group.count);
  if (group.count > 1) {
    std::unique_ptr<PackedPanel>& slot = packed->slot(static_cast<int>(group.index));
    slot = engine(compute).pack(w, use, std::move(slot));
    return packed;
  }
  for (int index = 0; index < packed->panels(); ++index) {
    const PanelRange range = packed->range(index);
    packed->slot(index) =
        engine(compute).pack(w.row_slice(range.first, range.count), use, std::move(packed->slot(index)));
  }
  return packed;
}

std::unique_ptr<PackedWeight> MatrixProducts::pack_blocks(const Mxfp4Rows& w, std::unique_ptr<PackedWeight> reuse,
                                                          WeightGroup group) const {
  std::unique_ptr<CpuPackedWeight> packed(static_cast<CpuPackedWeight*>(reuse.release()));
  if (packed == nullptr) {
    packed =
        std::make_unique<CpuPackedWeight>(group.count * w.rows, w.columns, DType::f32, PackFor::forward, group.count);
  }
  packed->slot(static_cast<int>(group.index)) = std::make_unique<BlockPanel>(w);
  return packed;
}

void MatrixProducts::linear(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& y,
                            std::optional<GeluKind> activation, bool rows_alone) const {
  const CpuPackedWeight& weight = own(w, PackFor::forward);
  assert(x.columns() == weight.columns() && y.columns() == weight.rows() && x.rows() == y.rows());
  if (x.rows() == 0) return;
  for (int index = 0; index < weight.panels(); ++index) {
    const PanelRange range = weight.range(index);
    const float* panel_bias = bias.defined() ? bias.data<float>() + range.first : nullptr;
    const Matrix out = Matrix::of(y).column_slice(range.first, range.count);
    const Epilogue epilogue{.bias = panel_bias, .activation = activation};
    const ProductEngine& engine = this->engine(weight.compute());
    if (rows_alone) {
      engine.multiply_each(Matrix::of(x), weight.panel(index), out, epilogue);
    } else {
      engine.multiply(Matrix::of(x), weight.panel(index), PackFor::forward, out, epilogue);
    }
  }
}

void MatrixProducts::linear_backward_input(const Tensor& dy, const PackedWeight& w, const Tensor& dx,
                                           bool accumulate) const {
  const CpuPackedWeight& weight = own(w, PackFor::backward_input);
  assert(dy.columns() == weight.rows() && dx.columns() == weight.columns() && dx.rows() == dy.rows());
  if (dy.rows() == 0) return;
  for (int index = 0; index < weight.panels(); ++index) {
    const PanelRange range = weight.range(index);
    engine(weight.compute())
        .multiply(Matrix::of(dy).column_slice(range.first, range.count), weight.panel(index), PackFor::backward_input,
                  Matrix::of(dx), {.accumulate = accumulate || index > 0});
  }
}

void MatrixProducts::linear_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw,
                                            const Tensor& dbias) const {
  assert(dy.dtype() == x.dtype() && dw.dtype() == DType::f32 && dy.rows() == x.rows());
  assert(dw.rows() == dy.columns() && dw.columns() == x.columns());
  if (dy.rows() == 0) return;
  engine(x.dtype()).add_outer_products(dy, x, dw);
  if (!dbias.defined()) return;
  kernels_.add_column_sums({dy.raw(), dy.dtype() == DType::bf16}, dy.rows(), dy.columns(), dbias.data<float>());
}

namespace {

/// Calls body(group, first row, rows) for the groups with rows.
template <class Body>
void for_groups(const Tensor& offsets, std::int64_t groups, Body body) {
  const std::span<const std::int32_t> ends = offsets.span<std::int32_t>();
  assert(std::ssize(ends) == groups + 1);
  for (int group = 0; group < groups; ++group) {
    const auto at = static_cast<std::size_t>(group);
    if (ends[at] < ends[at + 1]) body(group, std::int64_t{ends[at]}, std::int64_t{ends[at + 1]} - ends[at]);
  }
}

}  // namespace

void MatrixProducts::grouped_linear(const GroupedLinear& op) const {
  const CpuPackedWeight& weight = own(*op.w, PackFor::forward);
  const ProductEngine& engine = this->engine(weight.compute());
  const Matrix x = Matrix::of(op.x), y = Matrix::of(op.y);
  assert(x.columns == weight.columns() && y.columns == weight.range(0).count && x.rows == y.rows);
  for_groups(op.offsets, weight.panels(), [&](int group, std::int64_t first, std::int64_t rows) {
    const bool each = op.rows_alone || rows <= engine.few_rows();
    if (const Mxfp4Rows* blocks = weight.panel(group).blocks()) {
      return multiply_blocks({*f32_, scratch_, kernels_}, x.row_slice(first, rows), *blocks, y.row_slice(first, rows),
                             each);
    }
    const Matrix in = x.row_slice(first, rows), out = y.row_slice(first, rows);
    if (each) return engine.multiply_each(in, weight.panel(group), out, {});
    engine.multiply(in, weight.panel(group), PackFor::forward, out, {});
  });
}

void MatrixProducts::grouped_linear_backward_input(const GroupedLinearBackwardInput& op) const {
  const CpuPackedWeight& weight = own(*op.w, PackFor::backward_input);
  const Matrix dy = Matrix::of(op.dy), dx = Matrix::of(op.dx);
  assert(dx.columns == weight.columns() && dy.columns == weight.range(0).count && dx.rows == dy.rows);
  for_groups(op.offsets, weight.panels(), [&](int group, std::int64_t first, std::int64_t rows) {
    if (const Mxfp4Rows* blocks = weight.panel(group).blocks()) {
      return multiply_blocks_backward({*f32_, scratch_, kernels_}, dy.row_slice(first, rows), *blocks,
                                      dx.row_slice(first, rows));
    }
    engine(weight.compute())
        .multiply(dy.row_slice(first, rows), weight.panel(group), PackFor::backward_input, dx.row_slice(first, rows),
                  {});
  });
}

void MatrixProducts::grouped_linear_backward_weight(const GroupedLinearBackwardWeight& op) const {
  const std::int64_t rows = op.dy.columns();
  assert(op.dy.dtype() == op.x.dtype() && op.dw.dtype() == DType::f32 && op.dw.columns() == op.x.columns());
  for_groups(op.offsets, op.dw.rows() / rows, [&](int group, std::int64_t first, std::int64_t count) {
    engine(op.x.dtype())
        .add_outer_products(op.dy.row_slice(first, count), op.x.row_slice(first, count),
                            op.dw.row_slice(group * rows, rows));
  });
}

void MatrixProducts::linear_panel(const Tensor& x, const PackedWeight& w, int panel, const Tensor& y) const {
  const CpuPackedWeight& weight = own(w, PackFor::forward);
  if (x.rows() == 0) return;
  engine(weight.compute()).multiply(Matrix::of(x), weight.panel(panel), PackFor::forward, Matrix::of(y), {});
}

void MatrixProducts::copy_row(const PackedWeight& w, std::int64_t row, float* to) const {
  const CpuPackedWeight& weight = own(w, PackFor::forward);
  const int index = weight.panel_of(row);
  engine(weight.compute()).copy_column(weight.panel(index), row - weight.range(index).first, to);
}

void MatrixProducts::linear_backward_input_panel(const Tensor& dy, const PackedWeight& w, int panel, const Tensor& dx,
                                                 bool accumulate) const {
  const CpuPackedWeight& weight = own(w, PackFor::backward_input);
  if (dy.rows() == 0) return;
  engine(weight.compute())
      .multiply(Matrix::of(dy), weight.panel(panel), PackFor::backward_input, Matrix::of(dx),
                {.accumulate = accumulate});
}

}  // namespace maestro::cpu
