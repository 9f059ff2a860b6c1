// SPDX-License-Identifier: Apache-2.0
// Test tensors with their memory; values are set and read as doubles for every dtype.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/core/tensor.hpp"

namespace maestro::testing {

using Values = std::vector<double>;

class OwnedTensor {
 public:
  OwnedTensor(DType dtype, Shape shape)
      : memory_(Tensor(nullptr, dtype, shape).bytes() + 64), tensor_(memory_.data(), dtype, shape) {}
  OwnedTensor(DType dtype, Shape shape, const Values& values) : OwnedTensor(dtype, shape) { fill(values); }

  [[nodiscard]] const Tensor& tensor() const { return tensor_; }
  operator const Tensor&() const { return tensor_; }  // NOLINT: reads as a tensor
  operator ConstTensor() const { return tensor_; }    // NOLINT
  [[nodiscard]] float get(std::int64_t i) const {
    if (tensor_.dtype() == DType::i32) return static_cast<float>(tensor_.data<std::int32_t>()[i]);
    return tensor_.dtype() == DType::bf16 ? static_cast<float>(tensor_.data<bfloat16>()[i]) : tensor_.data<float>()[i];
  }
  void set(std::int64_t i, double value) const {
    if (tensor_.dtype() == DType::i32) tensor_.data<std::int32_t>()[i] = static_cast<std::int32_t>(value);
    if (tensor_.dtype() == DType::bf16) tensor_.data<bfloat16>()[i] = bfloat16(static_cast<float>(value));
    if (tensor_.dtype() == DType::f32) tensor_.data<float>()[i] = static_cast<float>(value);
  }
  void fill(const Values& values) const {
    for (std::size_t i = 0; i < values.size(); ++i) set(static_cast<std::int64_t>(i), values[i]);
  }
  void fill(double value) const { fill(Values(static_cast<std::size_t>(tensor_.elements()), value)); }
  [[nodiscard]] Values values() const {
    Values out(static_cast<std::size_t>(tensor_.elements()));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = get(static_cast<std::int64_t>(i));
    return out;
  }

 private:
  AlignedMemory memory_;
  Tensor tensor_;
};

/// Returns normal numbers that bf16 holds exactly, so that both precisions have the same inputs.
inline Values exact_normals(std::mt19937& generator, std::int64_t count, double deviation = 1) {
  std::normal_distribution<double> normal(0, deviation);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values) value = static_cast<float>(bfloat16(static_cast<float>(normal(generator))));
  return values;
}

/// Returns the largest |a - b| divided by the largest |b|, but at least by `floor`; infinity for NaN or unequal sizes.
inline double worst_error(const Values& a, const Values& b, double floor = 1e-30) {
  double worst = 0;
  double size = floor;
  for (const double value : b) size = std::max(size, std::abs(value));
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double error = std::abs(a.at(i) - b[i]);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return a.size() == b.size() ? worst / size : INFINITY;
}

}  // namespace maestro::testing
