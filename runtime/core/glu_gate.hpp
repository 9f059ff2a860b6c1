// SPDX-License-Identifier: Apache-2.0
// The gate of a gated linear unit, separate from its operators, so that kernels and models include only this.
#pragma once

#include <cstdint>

namespace maestro {

/// The gate's function (Shazeer 2020). `silu` and `gelu`, by tanh, are SwiGLU and GEGLU, over x = [gate | up].
/// `clamped` is gpt-oss' unit: with gate' = min(gate, limit) and up' = up in [-limit, limit] it is (up' + 1) gate'
/// sigmoid(alpha gate'), and gate and up are alternate columns of x.
struct GluGate {
  enum class Kind : std::uint8_t { silu, gelu, clamped };
  Kind kind = Kind::silu;
  double limit = 0;  ///< clamped only, as alpha
  double alpha = 0;
  static const GluGate silu, gelu;
  [[nodiscard]] static constexpr GluGate clamped(double limit, double alpha) { return {Kind::clamped, limit, alpha}; }
  bool operator==(const GluGate&) const = default;
};
inline constexpr GluGate GluGate::silu{};
inline constexpr GluGate GluGate::gelu{.kind = GluGate::Kind::gelu};

}  // namespace maestro
