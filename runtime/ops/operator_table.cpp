// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/operator_table.hpp"

#include <cassert>
#include <cstring>

#include "runtime/ops/element_math.hpp"

namespace maestro {

namespace {

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

// Tables of the CPU do with these; others replace them.

void OperatorTable::zero(const Tensor& to) const {
  assert(memory().host());
  if (to.bytes() > 0) std::memset(to.raw(), 0, to.bytes());
}

void OperatorTable::copy(const Tensor& from, const Tensor& to) const {
  assert(memory().host() && from.dtype() == to.dtype() && from.bytes() == to.bytes());
  copy_bytes(to.raw(), from.raw(), to.bytes());
}

void OperatorTable::upload(const Tensor& host_from, const Tensor& to) const {
  copy(host_from, to);
}

void OperatorTable::download(const Tensor& from, const Tensor& host_to) const {
  copy(from, host_to);
}

void OperatorTable::put(std::span<const std::byte> values, const Tensor& to) const {
  assert(memory().host() && values.size() == to.bytes());
  copy_bytes(to.raw(), values.data(), values.size());
}

void OperatorTable::shift_ids(const Tensor& ids, std::int64_t by, std::int64_t limit, const Tensor& out) const {
  assert(memory().host() && ids.elements() == out.elements());
  const std::span<const std::int32_t> from = ids.span<std::int32_t>();
  const std::span<std::int32_t> to = out.span<std::int32_t>();
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = element::shifted_id(from[i], by, limit);
}

void OperatorTable::pick_columns(const Tensor& from, const Tensor& columns, const Tensor& to) const {
  const std::int64_t picked = columns.columns();
  assert(memory().host() && from.rows() == columns.rows() && columns.elements() == to.elements());
  for (std::int64_t row = 0; row < columns.rows(); ++row) {
    const std::int32_t* values = from.data<std::int32_t>() + row * from.columns();
    const std::int32_t* chosen = columns.data<std::int32_t>() + row * picked;
    std::int32_t* result = to.data<std::int32_t>() + row * picked;
    for (std::int64_t i = 0; i < picked; ++i) result[i] = values[chosen[i]];
  }
}

void OperatorTable::linear_gelu(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& pre,
                                const Tensor& y) const {
  linear(x, w, bias, pre);
  gelu(pre, y);
}

void OperatorTable::linear_backward_input_gelu(const Tensor& dy, const PackedWeight& w, const Tensor& pre,
                                               const Tensor& dpre) const {
  linear_backward_input(dy, w, dpre, false);
  gelu_backward(dpre, pre, dpre);
}

void OperatorTable::add_layer_norm(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias,
                                   double epsilon, const Tensor& sum, const Tensor& y, const Tensor& mean,
                                   const Tensor& rstd) const {
  add(a, b, sum);
  layer_norm(sum, weight, bias, epsilon, y, mean, rstd);
}

void OperatorTable::add_rms_norm(const Tensor& a, const Tensor& b, const Tensor& weight, double epsilon,
                                 const Tensor& sum, const Tensor& y, const Tensor& rstd) const {
  add(a, b, sum);
  rms_norm(sum, weight, epsilon, y, rstd);
}

void OperatorTable::adamw(std::span<float> value, std::span<float> gradient, std::span<float> mean,
                          std::span<float> variance, const AdamWStep& step, std::span<bfloat16> rounded) const {
  assert(rounded.size() == value.size());
  adamw(value, gradient, mean, variance, step);
  const auto count = static_cast<std::int64_t>(value.size());
  cast(Tensor(value.data(), DType::f32, Shape{count}), Tensor(rounded.data(), DType::bf16, Shape{count}));
}

}  // namespace maestro
