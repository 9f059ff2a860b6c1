// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/cpu_operator_table.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/ops/adamw_coefficients.hpp"
#include "runtime/ops/cpu/attention/cached_attention.hpp"
#include "runtime/ops/cpu/attention/rotary_kernels.hpp"
#include "runtime/ops/cpu/losses/top_k.hpp"
#include "runtime/ops/cpu/pointwise/flat_kernels.hpp"
#include "runtime/ops/cpu/pointwise/norm_kernels.hpp"
#include "runtime/ops/element_math.hpp"

namespace maestro::cpu {

namespace {

In in(const Tensor& tensor) {
  return {tensor.raw(), tensor.dtype() == DType::bf16};
}
Out out(const Tensor& tensor) {
  return {tensor.raw(), tensor.dtype() == DType::bf16};
}
float* floats_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<float>() : nullptr;
}

Isa checked(Isa isa) {
  if (supported(isa)) return isa;
  throw JobError("CPU operators: this CPU cannot run " + std::string(name_of(isa)) + " kernels; the best it runs is " +
                     std::string(name_of(supported_isas().back())),
                 ErrorCode::unavailable);
}

Bf16Products checked(Bf16Products bf16) {
  if (bf16 == Bf16Products::converted || native_bf16_supported()) return bf16;
  throw JobError("CPU operators: this CPU has no bf16 dot products; use converted ones", ErrorCode::unavailable);
}

}  // namespace

CpuOperatorTable::CpuOperatorTable(Isa isa, Bf16Products bf16)
    : isa_(checked(isa)),
      bf16_(checked(bf16)),
      pointwise_(pointwise_kernels(isa)),
      products_(isa, bf16, scratch_),
      attention_(isa, scratch_),
      losses_(isa, products_, scratch_) {}

std::unique_ptr<PackedWeight> CpuOperatorTable::pack(const Tensor& w, DType compute, PackFor use,
                                                     std::unique_ptr<PackedWeight> reuse) const {
  return products_.pack(w, compute, use, std::move(reuse));
}

void CpuOperatorTable::run(const Linear& op) const {
  if (!op.pre.defined()) return products_.linear(op.x, *op.w, op.bias, op.y, op.activation);
  assert(op.activation == Activation::gelu);
  products_.linear(op.x, *op.w, op.bias, op.pre, Activation::none);
  run(Gelu{.x = op.pre, .y = op.y});
}

void CpuOperatorTable::run(const LinearBackwardInput& op) const {
  assert(!op.pre.defined() || !op.accumulate);
  products_.linear_backward_input(op.dy, *op.w, op.dx, op.accumulate);
  if (op.pre.defined()) run(GeluBackward{.dy = op.dx, .x = op.pre, .dx = op.dx});
}

void CpuOperatorTable::run(const LinearBackwardWeight& op) const {
  products_.linear_backward_weight(op.dy, op.x, op.dw, op.dbias);
}

void CpuOperatorTable::run(const Norm& op) const {
  assert(op.mean.defined() == op.bias.defined() && op.sum.defined() == op.added.defined());
  if (op.added.defined()) run(Add{.a = op.x, .b = op.added, .out = op.sum});
  const Tensor& x = op.added.defined() ? op.sum : op.x;
  const NormCall call{.x = in(x),
                      .y = out(op.y),
                      .weight = op.weight.data<float>(),
                      .bias = floats_or_null(op.bias),
                      .mean = floats_or_null(op.mean),
                      .rstd = op.rstd.data<float>(),
                      .rows = x.rows(),
                      .columns = x.columns(),
                      .epsilon = static_cast<float>(op.epsilon)};
  const NormKernels& kernels = norm_kernels(isa_);
  op.bias.defined() ? kernels.layer_norm(call) : kernels.rms_norm(call);
}

void CpuOperatorTable::run(const NormBackward& op) const {
  assert(op.dbias.defined() == (op.mean.defined() && op.dweight.defined()));
  const NormBackwardCall call{.dy = in(op.dy),
                              .x = in(op.x),
                              .weight = op.weight.data<float>(),
                              .mean = floats_or_null(op.mean),
                              .rstd = op.rstd.data<float>(),
                              .dx = out(op.dx),
                              .accumulate = op.accumulate,
                              .dweight = floats_or_null(op.dweight),
                              .dbias = floats_or_null(op.dbias),
                              .rows = op.x.rows(),
                              .columns = op.x.columns()};
  const NormKernels& kernels = norm_kernels(isa_);
  op.mean.defined() ? kernels.layer_norm_backward(call) : kernels.rms_norm_backward(call);
}

void CpuOperatorTable::run(const Gelu& op) const {
  pointwise_.gelu(in(op.x), out(op.y), op.x.elements());
}

void CpuOperatorTable::run(const GeluBackward& op) const {
  pointwise_.gelu_backward(in(op.dy), in(op.x), out(op.dx), op.x.elements());
}

void CpuOperatorTable::run(const SwiGlu& op) const {
  assert(op.x.columns() == 2 * op.y.columns());
  pointwise_.swiglu(in(op.x), out(op.y), op.y.rows(), op.y.columns());
}

void CpuOperatorTable::run(const SwiGluBackward& op) const {
  assert(op.x.columns() == 2 * op.dy.columns());
  pointwise_.swiglu_backward(in(op.dy), in(op.x), out(op.dx), op.dy.rows(), op.dy.columns());
}

void CpuOperatorTable::run(const Add& op) const {
  assert(op.a.elements() == op.b.elements() && op.a.elements() == op.out.elements());
  pointwise_.add(in(op.a), in(op.b), out(op.out), op.a.elements());
}

void CpuOperatorTable::run(const Cast& op) const {
  assert(op.from.elements() == op.to.elements());
  pointwise_.cast(in(op.from), out(op.to), op.from.elements());
}

void CpuOperatorTable::run(const Embedding& op) const {
  const std::int64_t columns = op.table.columns();
  const auto id = op.ids.span<std::int32_t>();
  assert(!op.positions_table.defined() || op.positions.size() >= id.size());
  float* to = op.y.data<float>();
  for (std::size_t row = 0; row < id.size(); ++row, to += columns) {
    assert(id[row] >= -1 && id[row] < op.table.rows());
    const float* token = id[row] < 0 ? nullptr : op.table.data<float>() + id[row] * columns;
    const float* place = nullptr;
    if (op.positions_table.defined()) {
      assert(op.positions[row] >= 0 && op.positions[row] < op.positions_table.rows());
      place = op.positions_table.data<float>() + op.positions[row] * columns;
    }
    if (token != nullptr && place != nullptr) {
      pointwise_.add({token, false}, {place, false}, {to, false}, columns);
    } else if (token != nullptr || place != nullptr) {
      std::copy_n(token != nullptr ? token : place, columns, to);
    } else {
      std::fill_n(to, columns, 0.0F);
    }
  }
}

void CpuOperatorTable::run(const EmbeddingBackward& op) const {
  const std::int64_t columns = op.dy.columns();
  const auto id = op.ids.span<std::int32_t>();
  const auto add_row = [&](const Tensor& to, std::int32_t row, const float* from) {
    assert(row >= 0 && row < to.rows());
    float* sum = to.data<float>() + row * columns;
    pointwise_.add({sum, false}, {from, false}, {sum, false}, columns);
  };
  for (std::size_t row = 0; row < id.size(); ++row) {
    const float* gradient = op.dy.data<float>() + static_cast<std::int64_t>(row) * columns;
    if (op.dtable.defined() && id[row] >= 0) add_row(op.dtable, id[row], gradient);
    if (op.dpositions.defined()) add_row(op.dpositions, op.positions[row], gradient);
  }
}

void CpuOperatorTable::run(const ShiftIds& op) const {
  assert(op.ids.elements() == op.out.elements());
  const std::span<const std::int32_t> from = op.ids.span<std::int32_t>();
  const std::span<std::int32_t> to = op.out.span<std::int32_t>();
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = element::shifted_id(from[i], op.by, op.limit);
}

void CpuOperatorTable::run(const PickColumns& op) const {
  const std::int64_t picked = op.columns.columns();
  assert(op.from.rows() == op.columns.rows() && op.columns.elements() == op.to.elements());
  for (std::int64_t row = 0; row < op.columns.rows(); ++row) {
    const std::int32_t* values = op.from.data<std::int32_t>() + row * op.from.columns();
    const std::int32_t* chosen = op.columns.data<std::int32_t>() + row * picked;
    std::int32_t* result = op.to.data<std::int32_t>() + row * picked;
    for (std::int64_t i = 0; i < picked; ++i) result[i] = values[chosen[i]];
  }
}

void CpuOperatorTable::run(const IndexSelect& op) const {
  const std::int64_t columns = op.from.columns();
  assert(op.to.columns() == columns && op.to.rows() == static_cast<std::int64_t>(op.index.size()));
  for (std::size_t row = 0; row < op.index.size(); ++row) {
    assert(op.index[row] >= 0 && op.index[row] < op.from.rows());
    const Tensor source = op.from.row_slice(op.index[row], 1);
    pointwise_.cast(in(source), out(op.to.row_slice(static_cast<std::int64_t>(row), 1)), columns);
  }
}

void CpuOperatorTable::run(const IndexAdd& op) const {
  const std::int64_t columns = op.to.columns();
  assert(op.rows.columns() == columns && op.rows.rows() == static_cast<std::int64_t>(op.index.size()));
  for (std::size_t row = 0; row < op.index.size(); ++row) {
    assert(op.index[row] >= 0 && op.index[row] < op.to.rows());
    const Tensor sum = op.to.row_slice(op.index[row], 1);
    pointwise_.add(in(sum), in(op.rows.row_slice(static_cast<std::int64_t>(row), 1)), out(sum), columns);
  }
}

void CpuOperatorTable::run(const Rotary& op) const {
  const AttentionShape& shape = op.shape;
  assert(shape.head_size % 2 == 0 && op.qkv.columns() == shape.qkv_columns());
  assert(static_cast<std::int64_t>(op.positions.size()) >= op.qkv.rows());
  assert(op.direction == 1 || op.direction == -1);
  if (op.qkv.rows() == 0) return;
  const auto used = op.positions.first(static_cast<std::size_t>(op.qkv.rows()));
  const std::int64_t last = *std::max_element(used.begin(), used.end());
  const auto angles = rotary_.angles(op.theta, shape.head_size, last + 1);
  rotary_kernels(isa_).rotate({.qkv = out(op.qkv),
                               .rows = op.qkv.rows(),
                               .stride = op.qkv.columns(),
                               .heads = shape.heads + shape.kv_heads,
                               .half = shape.head_size / 2,
                               .positions = used.data(),
                               .cosines = angles->cosines.data(),
                               .sines = angles->sines.data(),
                               .direction = static_cast<float>(op.direction)});
}

void CpuOperatorTable::run(const Attention& op) const {
  attention_.forward({op.qkv, op.out, op.lse}, op.shape, op.layout);
}

void CpuOperatorTable::run(const AttentionBackward& op) const {
  attention_.backward({op.qkv, op.out, op.lse}, {op.dout, op.dqkv}, op.shape, op.layout);
}

void CpuOperatorTable::run(const CachedAttention& op) const {
  cached_attention(isa_, scratch_, op);
}

Pending<LossSums> CpuOperatorTable::run(const CrossEntropyLoss& op) const {
  return losses_.cross_entropy(op.head, op.part);
}

Pending<LossSums> CpuOperatorTable::run(const DistillationLoss& op) const {
  return losses_.distillation(op.head, op.part);
}

void CpuOperatorTable::run(const TopK& op) const {
  top_k(isa_, op.logits, op.values, op.indices, op.columns);
}

void CpuOperatorTable::run(const AdamW& op) const {
  assert(op.gradient.size() == op.value.size() && op.mean.size() == op.value.size());
  assert(op.variance.size() == op.value.size());
  const auto count = static_cast<std::int64_t>(op.value.size());
  flat_kernels(isa_).adamw({.value = op.value.data(),
                            .gradient = op.gradient.data(),
                            .mean = op.mean.data(),
                            .variance = op.variance.data(),
                            .count = count,
                            .step = adamw_coefficients(op.step)});
  if (op.rounded.empty()) return;
  assert(op.rounded.size() == op.value.size());
  pointwise_.cast({op.value.data(), false}, {op.rounded.data(), true}, count);
}

Pending<double> CpuOperatorTable::run(const SumOfSquares& op) const {
  return flat_kernels(isa_).sum_of_squares(op.values.data(), static_cast<std::int64_t>(op.values.size()));
}

void CpuOperatorTable::run(const AddInto& op) const {
  assert(op.into.size() == op.values.size());
  pointwise_.add({op.into.data(), false}, {op.values.data(), false}, {op.into.data(), false},
                 static_cast<std::int64_t>(op.into.size()));
}

}  // namespace maestro::cpu
