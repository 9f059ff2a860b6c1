// SPDX-License-Identifier: Apache-2.0
// Speeds of devices relative to the fastest.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

namespace maestro {

struct RelativeSpeeds {
  double fastest = 1;
  std::vector<double> speeds;  ///< the fastest has 1; empty if all are equal
};

/// Returns the speeds, each above 0, divided by the fastest.
[[nodiscard]] inline RelativeSpeeds relative_speeds(std::vector<double> speeds) {
  if (speeds.empty()) return {};
  const double fastest = std::ranges::max(speeds);
  if (std::ranges::min(speeds) == fastest) return {fastest, {}};
  for (double& speed : speeds) speed /= fastest;
  return {fastest, std::move(speeds)};
}

}  // namespace maestro
