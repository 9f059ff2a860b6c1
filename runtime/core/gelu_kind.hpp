// SPDX-License-Identifier: Apache-2.0
// The forms of GELU (Hendrycks & Gimpel 2016).
#pragma once

#include <cstdint>

namespace maestro {

enum class GeluKind : std::uint8_t {
  tanh,  ///< 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  erf,   ///< x Phi(x), Phi being the normal distribution's function
  quick  ///< x sigmoid(1.702 x)
};

}  // namespace maestro
