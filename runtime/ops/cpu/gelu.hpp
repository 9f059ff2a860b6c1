// GELU on vectors. For kernel sources only.
#pragma once

#include "runtime/ops/cpu/vector_math.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {

// Tanh-approximated GELU: 0.5 x (1 + tanh u) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3). The sigmoid form has
// no cancellation for negative x.
inline constexpr float twice_root = 1.5957691216057308F;  // 2 sqrt(2 / pi)
inline constexpr float cubic = 0.044715F;

MAESTRO_INLINE Vec gelu_of(Vec x) {
  return x * sigmoid(twice_root * x * (1.0F + cubic * x * x));
}
MAESTRO_INLINE Vec gelu_slope(Vec x) {
  const Vec square = x * x;
  const Vec s = sigmoid(twice_root * x * (1.0F + cubic * square));
  return s + x * s * (1.0F - s) * (twice_root * (1.0F + 3.0F * cubic * square));
}

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
