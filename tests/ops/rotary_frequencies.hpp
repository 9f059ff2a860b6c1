// SPDX-License-Identifier: Apache-2.0
// Rotary frequencies of Su et al. 2021 for tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>

#include "runtime/ops/rotary_frequencies.hpp"

namespace maestro::testing {

/// Returns inverse[i] = theta^(-2i / columns), i < columns / 2.
inline RotaryFrequencies frequencies(double theta, std::int64_t columns, double magnitude = 1) {
  RotaryFrequencies found{.inverse = {}, .magnitude = magnitude, .axis = {}};
  for (std::int64_t i = 0; i < columns / 2; ++i) {
    found.inverse.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(columns)));
  }
  return found;
}

inline std::shared_ptr<const RotaryFrequencies> shared_frequencies(double theta, std::int64_t columns) {
  return std::make_shared<const RotaryFrequencies>(frequencies(theta, columns));
}

}  // namespace maestro::testing
