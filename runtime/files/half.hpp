// SPDX-License-Identifier: Apache-2.0
// Conversion of IEEE binary16, which occurs in files but in no operator.
#pragma once

#include <bit>
#include <cstdint>

namespace maestro {

/// Returns the value of a binary16, which is exact in f32.
[[nodiscard]] inline float value_of_half(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000U} << 16;
  const std::uint32_t exponent = half >> 10 & 0x1fU, fraction = half & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;  // subnormal, or zero
  return sign != 0 ? -magnitude : magnitude;
}

/// Returns the nearest binary16, rounded to even; infinity beyond the largest, 65504. NaN stays NaN.
[[nodiscard]] inline std::uint16_t half_of(float value) {
  constexpr std::uint32_t infinity = 0x7f800000U, smallest_normal = 0x38800000U, too_large = 0x47800000U;  // as f32
  constexpr std::uint32_t bias = 0x38000000U;  // difference of the two exponents' biases, 112
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = word >> 16 & 0x8000U, magnitude = word & 0x7fffffffU;
  std::uint32_t half = 0;
  if (magnitude > infinity) {
    half = 0x7e00U;
  } else if (magnitude < smallest_normal) {
    // The last place of 0.5 is the smallest subnormal, 2^-24: the addition rounds to it.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  } else {
    const std::uint32_t rounded = magnitude + 0xfffU + (magnitude >> 13 & 1U);
    half = rounded >= too_large ? 0x7c00U : (rounded - bias) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace maestro
