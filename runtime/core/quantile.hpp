// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace maestro {

/// Returns the value that `share` of the values, at least one, are below: 0.5 for the upper median. `share` in [0, 1).
[[nodiscard]] inline double quantile_of(std::vector<double> values, double share) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(static_cast<double>(values.size()) * share);
  std::ranges::nth_element(values, at);
  return *at;
}

}  // namespace maestro
