// SPDX-License-Identifier: Apache-2.0
// Lets tests call each instruction set's vector functions on arrays.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

struct VectorMathProbe {
  int width;
  /// Maps `count` values; an incomplete last vector is handled as in kernels.
  void (*exp)(const float* x, float* y, std::int64_t count);
  void (*sigmoid)(const float* x, float* y, std::int64_t count);
  void (*tanh)(const float* x, float* y, std::int64_t count);
  void (*to_bf16)(const float* x, std::uint16_t* y, std::int64_t count);
  void (*from_bf16)(const std::uint16_t* x, float* y, std::int64_t count);
  float (*sum)(const float* x);  ///< sum of a vector
  float (*max)(const float* x);
  /// Transposes (width, width).
  void (*transpose)(const float* x, float* y);
};
MAESTRO_KERNELS(VectorMathProbe, vector_math_probe)

}  // namespace maestro::cpu
