// SPDX-License-Identifier: Apache-2.0
// The angles of a rotary embedding (Su et al. 2021): pair i of a head at position p turns by p * inverse[i]. Rows with
// several positions turn each pair by one of them (Qwen2-VL, Wang et al. 2024, section 2.1).
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace maestro {

/// Cosines and sines are scaled by `magnitude` (YaRN, Peng et al. 2023, section 3.4).
struct RotaryFrequencies {
  std::vector<double> inverse;  ///< radians per position, a value for each rotated pair of columns
  double magnitude = 1;
  std::vector<std::uint8_t> axis;  ///< position that turns each pair if rows have several; empty: the first
  auto operator<=>(const RotaryFrequencies&) const = default;
};

}  // namespace maestro
