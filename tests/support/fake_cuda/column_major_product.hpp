// SPDX-License-Identifier: Apache-2.0
// A product described in cuBLASLt's terms, computed on host memory in the simplest way: the reference for plans, and
// the arithmetic of the fake library.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "runtime/ops/cuda/products/lt_plan.hpp"

namespace maestro::testing {

/// Memory of a plan's operands; beta D reads `c`, usually `d` itself.
struct ProductMemory {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  void* vector = nullptr;
  void* auxiliary = nullptr;
};

inline float load_element(const void* memory, DType dtype, std::int64_t index) {
  if (dtype == DType::f32) return static_cast<const float*>(memory)[index];
  return static_cast<float>(static_cast<const bfloat16*>(memory)[index]);
}

inline void store_element(void* memory, DType dtype, std::int64_t index, double value) {
  if (dtype == DType::f32) {
    static_cast<float*>(memory)[index] = static_cast<float>(value);
  } else {
    static_cast<bfloat16*>(memory)[index] = bfloat16(static_cast<float>(value));
  }
}

inline float element(const void* memory, const cuda::ColumnMajor& matrix, bool transposed, std::int64_t row,
                     std::int64_t column) {
  if (transposed) std::swap(row, column);
  return load_element(memory, matrix.dtype, row + column * matrix.leading);
}

inline double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

inline double gelu_tanh_slope(double x) {
  const double root = std::sqrt(2 / M_PI);
  const double t = std::tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}

/// Applies the plan's epilogue to an element of D and the vectors next to it.
inline double finish_element(const cuda::ProductPlan& plan, const ProductMemory& memory, std::int64_t row,
                             std::int64_t column, double value) {
  using cuda::ProductEpilogue;
  const std::int64_t auxiliary = row + column * plan.auxiliary_leading;
  if (plan.epilogue == ProductEpilogue::bias || plan.epilogue == ProductEpilogue::gelu_bias) {
    value += load_element(memory.vector, plan.vector_dtype, row);
  }
  if (plan.epilogue == ProductEpilogue::gelu || plan.epilogue == ProductEpilogue::gelu_bias) {
    store_element(memory.auxiliary, plan.d.dtype, auxiliary, value);
    return gelu_tanh(value);
  }
  if (plan.epilogue == ProductEpilogue::gelu_gradient) {
    return value * gelu_tanh_slope(load_element(memory.auxiliary, plan.d.dtype, auxiliary));
  }
  return value;
}

inline void run_column_major_product(const cuda::ProductPlan& plan, const ProductMemory& memory) {
  const std::int64_t inner = plan.transpose_a ? plan.a.rows : plan.a.columns;
  for (std::int64_t column = 0; column < plan.d.columns; ++column) {
    for (std::int64_t row = 0; row < plan.d.rows; ++row) {
      double sum = 0;
      for (std::int64_t i = 0; i < inner; ++i) {
        sum += static_cast<double>(element(memory.a, plan.a, plan.transpose_a, row, i)) *
               element(memory.b, plan.b, plan.transpose_b, i, column);
      }
      const std::int64_t place = row + column * plan.d.leading;
      if (plan.beta != 0) sum += plan.beta * load_element(memory.c, plan.d.dtype, place);
      store_element(memory.d, plan.d.dtype, place, finish_element(plan, memory, row, column, sum));
    }
  }
  if (plan.epilogue != cuda::ProductEpilogue::column_sums) return;
  for (std::int64_t column = 0; column < plan.d.columns; ++column) {
    double sum = 0;
    for (std::int64_t i = 0; i < inner; ++i) sum += element(memory.b, plan.b, plan.transpose_b, i, column);
    store_element(memory.vector, plan.vector_dtype, column, sum);
  }
}

}  // namespace maestro::testing
