// SPDX-License-Identifier: Apache-2.0
// The gate of a memory (maestro::MemoryGate) for both backends, as element_math.hpp.
#pragma once

#include "runtime/ops/element_math.hpp"

namespace maestro::element {

/// sigmoid(sign(a) sqrt(max(|a|, 1e-6))).
struct MemoryGate {
  static constexpr float least = 1e-6F;
  MAESTRO_HD static float magnitude(float a) { return a < 0.0F ? -a : a; }
  MAESTRO_HD static float root(float a) { return Scalar::square_root(larger(magnitude(a), least)); }
  MAESTRO_HD static float value(float a) {
    const float z = root(a);
    return sigmoid(a < 0.0F ? -z : a > 0.0F ? z : 0.0F);
  }
  MAESTRO_HD static float slope(float a) {
    const float gate = value(a);
    return magnitude(a) > least ? gate * (1.0F - gate) / (2.0F * root(a)) : 0.0F;
  }
};

}  // namespace maestro::element
