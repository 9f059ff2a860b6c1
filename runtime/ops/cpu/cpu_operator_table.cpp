// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/cpu_operator_table.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/ops/adamw_coefficients.hpp"
#include "runtime/ops/cpu/attention/rotary_kernels.hpp"
#include "runtime/ops/cpu/losses/top_k.hpp"
#include "runtime/ops/cpu/pointwise/flat_kernels.hpp"
#include "runtime/ops/cpu/pointwise/norm_kernels.hpp"

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

void CpuOperatorTable::linear(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& y,
                              Activation activation) const {
  products_.linear(x, w, bias, y, activation);
}

void CpuOperatorTable::linear_backward_input(const Tensor& dy, const PackedWeight& w, const Tensor& dx,
                                             bool accumulate) const {
  products_.linear_backward_input(dy, w, dx, accumulate);
}

void CpuOperatorTable::linear_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw,
                                              const Tensor& dbias) const {
  products_.linear_backward_weight(dy, x, dw, dbias);
}

void CpuOperatorTable::layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                                  const Tensor& y, const Tensor& mean, const Tensor& rstd) const {
  norm_kernels(isa_).layer_norm({.x = in(x),
                                 .y = out(y),
                                 .weight = weight.data<float>(),
                                 .bias = bias.data<float>(),
                                 .mean = mean.data<float>(),
                                 .rstd = rstd.data<float>(),
                                 .rows = x.rows(),
                                 .columns = x.columns(),
                                 .epsilon = static_cast<float>(epsilon)});
}

void CpuOperatorTable::layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                                           const Tensor& rstd, const Tensor& dx, bool accumulate, const Tensor& dweight,
                                           const Tensor& dbias) const {
  assert(dweight.defined() == dbias.defined());
  norm_kernels(isa_).layer_norm_backward({.dy = in(dy),
                                          .x = in(x),
                                          .weight = weight.data<float>(),
                                          .mean = mean.data<float>(),
                                          .rstd = rstd.data<float>(),
                                          .dx = out(dx),
                                          .accumulate = accumulate,
                                          .dweight = floats_or_null(dweight),
                                          .dbias = floats_or_null(dbias),
                                          .rows = x.rows(),
                                          .columns = x.columns()});
}

void CpuOperatorTable::rms_norm(const Tensor& x, const Tensor& weight, double epsilon, const Tensor& y,
                                const Tensor& rstd) const {
  norm_kernels(isa_).rms_norm({.x = in(x),
                               .y = out(y),
                               .weight = weight.data<float>(),
                               .bias = nullptr,
                               .mean = nullptr,
                               .rstd = rstd.data<float>(),
                               .rows = x.rows(),
                               .columns = x.columns(),
                               .epsilon = static_cast<float>(epsilon)});
}

void CpuOperatorTable::rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                                         const Tensor& dx, bool accumulate, const Tensor& dweight) const {
  norm_kernels(isa_).rms_norm_backward({.dy = in(dy),
                                        .x = in(x),
                                        .weight = weight.data<float>(),
                                        .mean = nullptr,
                                        .rstd = rstd.data<float>(),
                                        .dx = out(dx),
                                        .accumulate = accumulate,
                                        .dweight = floats_or_null(dweight),
                                        .dbias = nullptr,
                                        .rows = x.rows(),
                                        .columns = x.columns()});
}

void CpuOperatorTable::gelu(const Tensor& x, const Tensor& y) const {
  pointwise_.gelu(in(x), out(y), x.elements());
}

void CpuOperatorTable::gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const {
  pointwise_.gelu_backward(in(dy), in(x), out(dx), x.elements());
}

void CpuOperatorTable::swiglu(const Tensor& x, const Tensor& y) const {
  assert(x.columns() == 2 * y.columns());
  pointwise_.swiglu(in(x), out(y), y.rows(), y.columns());
}

void CpuOperatorTable::swiglu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const {
  assert(x.columns() == 2 * dy.columns());
  pointwise_.swiglu_backward(in(dy), in(x), out(dx), dy.rows(), dy.columns());
}

void CpuOperatorTable::add(const Tensor& a, const Tensor& b, const Tensor& out_tensor) const {
  assert(a.elements() == b.elements() && a.elements() == out_tensor.elements());
  pointwise_.add(in(a), in(b), out(out_tensor), a.elements());
}

void CpuOperatorTable::cast(const Tensor& from, const Tensor& to) const {
  assert(from.elements() == to.elements());
  pointwise_.cast(in(from), out(to), from.elements());
}

void CpuOperatorTable::embedding(const Tensor& table, const Tensor& ids, const Tensor& positions_table,
                                 std::span<const std::int32_t> positions, const Tensor& y) const {
  const std::int64_t columns = table.columns();
  const auto id = ids.span<std::int32_t>();
  assert(!positions_table.defined() || positions.size() >= id.size());
  float* to = y.data<float>();
  for (std::size_t row = 0; row < id.size(); ++row, to += columns) {
    assert(id[row] >= -1 && id[row] < table.rows());
    const float* token = id[row] < 0 ? nullptr : table.data<float>() + id[row] * columns;
    const float* place = nullptr;
    if (positions_table.defined()) {
      assert(positions[row] >= 0 && positions[row] < positions_table.rows());
      place = positions_table.data<float>() + positions[row] * columns;
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

void CpuOperatorTable::embedding_backward(const Tensor& dy, const Tensor& ids, std::span<const std::int32_t> positions,
                                          const Tensor& dtable, const Tensor& dpositions) const {
  const std::int64_t columns = dy.columns();
  const auto id = ids.span<std::int32_t>();
  const auto add_row = [&](const Tensor& to, std::int32_t row, const float* from) {
    assert(row >= 0 && row < to.rows());
    float* sum = to.data<float>() + row * columns;
    pointwise_.add({sum, false}, {from, false}, {sum, false}, columns);
  };
  for (std::size_t row = 0; row < id.size(); ++row) {
    const float* gradient = dy.data<float>() + static_cast<std::int64_t>(row) * columns;
    if (dtable.defined() && id[row] >= 0) add_row(dtable, id[row], gradient);
    if (dpositions.defined()) add_row(dpositions, positions[row], gradient);
  }
}

void CpuOperatorTable::gather_rows(const Tensor& from, std::span<const std::int32_t> index, const Tensor& to) const {
  const std::int64_t columns = from.columns();
  assert(to.columns() == columns && to.rows() == static_cast<std::int64_t>(index.size()));
  for (std::size_t row = 0; row < index.size(); ++row) {
    assert(index[row] >= 0 && index[row] < from.rows());
    const Tensor source = from.row_slice(index[row], 1);
    pointwise_.cast(in(source), out(to.row_slice(static_cast<std::int64_t>(row), 1)), columns);
  }
}

void CpuOperatorTable::scatter_add_rows(const Tensor& rows, std::span<const std::int32_t> index,
                                        const Tensor& to) const {
  const std::int64_t columns = to.columns();
  assert(rows.columns() == columns && rows.rows() == static_cast<std::int64_t>(index.size()));
  for (std::size_t row = 0; row < index.size(); ++row) {
    assert(index[row] >= 0 && index[row] < to.rows());
    const Tensor sum = to.row_slice(index[row], 1);
    pointwise_.add(in(sum), in(rows.row_slice(static_cast<std::int64_t>(row), 1)), out(sum), columns);
  }
}

void CpuOperatorTable::rotary(const Tensor& qkv, const AttentionShape& shape, std::span<const std::int32_t> positions,
                              double theta, int direction) const {
  assert(shape.head_size % 2 == 0 && qkv.columns() == shape.qkv_columns());
  assert(static_cast<std::int64_t>(positions.size()) >= qkv.rows() && (direction == 1 || direction == -1));
  if (qkv.rows() == 0) return;
  const auto used = positions.first(static_cast<std::size_t>(qkv.rows()));
  const std::int64_t last = *std::max_element(used.begin(), used.end());
  const auto angles = rotary_.angles(theta, shape.head_size, last + 1);
  rotary_kernels(isa_).rotate({.qkv = out(qkv),
                               .rows = qkv.rows(),
                               .stride = qkv.columns(),
                               .heads = shape.heads + shape.kv_heads,
                               .half = shape.head_size / 2,
                               .positions = used.data(),
                               .cosines = angles->cosines.data(),
                               .sines = angles->sines.data(),
                               .direction = static_cast<float>(direction)});
}

void CpuOperatorTable::attention(const Tensor& qkv, const AttentionShape& shape, const SequenceLayout& layout,
                                 const Tensor& out_tensor, const Tensor& lse) const {
  attention_.forward({qkv, out_tensor, lse}, shape, layout);
}

void CpuOperatorTable::attention_backward(const Tensor& dout, const Tensor& qkv, const Tensor& out_tensor,
                                          const Tensor& lse, const AttentionShape& shape, const SequenceLayout& layout,
                                          const Tensor& dqkv) const {
  attention_.backward({qkv, out_tensor, lse}, {dout, dqkv}, shape, layout);
}

Pending<LossSums> CpuOperatorTable::cross_entropy_head(const CrossEntropyHead& head) const {
  return losses_.cross_entropy(head);
}

Pending<LossSums> CpuOperatorTable::distillation_head(const DistillationHead& head) const {
  return losses_.distillation(head);
}

Pending<LossSums> CpuOperatorTable::cross_entropy_head(const CrossEntropyHead& head, const VocabularyPart& part) const {
  return losses_.cross_entropy(head, part);
}

Pending<LossSums> CpuOperatorTable::distillation_head(const DistillationHead& head, const VocabularyPart& part) const {
  return losses_.distillation(head, part);
}

void CpuOperatorTable::top_k(const Tensor& logits, const Tensor& values, const Tensor& indices,
                             std::int64_t columns) const {
  cpu::top_k(isa_, logits, values, indices, columns);
}

void CpuOperatorTable::adamw(std::span<float> value, std::span<float> gradient, std::span<float> mean,
                             std::span<float> variance, const AdamWStep& step) const {
  assert(gradient.size() == value.size() && mean.size() == value.size() && variance.size() == value.size());
  flat_kernels(isa_).adamw({.value = value.data(),
                            .gradient = gradient.data(),
                            .mean = mean.data(),
                            .variance = variance.data(),
                            .count = static_cast<std::int64_t>(value.size()),
                            .step = adamw_coefficients(step)});
}

Pending<double> CpuOperatorTable::sum_of_squares(std::span<const float> values) const {
  return flat_kernels(isa_).sum_of_squares(values.data(), static_cast<std::int64_t>(values.size()));
}

void CpuOperatorTable::add_into(std::span<float> into, std::span<const float> values) const {
  assert(into.size() == values.size());
  pointwise_.add({into.data(), false}, {values.data(), false}, {into.data(), false},
                 static_cast<std::int64_t>(into.size()));
}

}  // namespace maestro::cpu
