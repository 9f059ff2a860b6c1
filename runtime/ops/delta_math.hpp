// SPDX-License-Identifier: Apache-2.0
// Gates of the gated delta rule by element, as element_math.hpp.
#pragma once

#include "runtime/ops/element_math.hpp"

namespace maestro::element {

inline constexpr float delta_norm_epsilon = 1e-6F;

template <class Math>
struct DeltaGatesOf {
  using Value = typename Math::Value;
  /// Returns log(1 + e^x), without loss of digits for negative x: log(1 + y) = y log(u) / (u - 1) with u = 1 + y
  /// rounded (Higham 2002, section 1.14.1).
  MAESTRO_HD static Value softplus(Value x) {
    const Value y = Math::exponential(-Math::larger(x, -x));
    const Value u = 1.0F + y, rounded = u - 1.0F;
    const Value tail = rounded == 0.0F ? y : Math::logarithm(u) * (y / rounded);
    return Math::larger(x, x * 0.0F) + tail;
  }
  /// Returns g <= 0, the logarithm of the state's factor.
  MAESTRO_HD static Value decay(Value a, Value a_log, Value dt_bias) {
    return -Math::exponential(a_log) * softplus(a + dt_bias);
  }
  /// Returns dg / da = dg / d dt_bias. dg / d a_log is g itself.
  MAESTRO_HD static Value decay_slope(Value a, Value a_log, Value dt_bias) {
    return -Math::exponential(a_log) * Math::sigmoid(a + dt_bias);
  }
};

}  // namespace maestro::element
