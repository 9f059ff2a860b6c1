// SPDX-License-Identifier: Apache-2.0
// Distributions of the lengths of samples, as points of their survival function.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace maestro {

/// A share of the samples, in (0, 1], that have at least so many tokens.
struct LengthPoint {
  std::int64_t length = 0;
  double share = 1;
  friend bool operator==(const LengthPoint&, const LengthPoint&) = default;
};
/// Lengths rise and shares fall, from 1 on; all samples of the last point have its length.
using LengthPoints = std::vector<LengthPoint>;

/// Returns distributions that resemble published ones, by name: byted and github as in ByteScale (arXiv 2502.21231),
/// commoncrawl and wikipedia as in FlexSP (arXiv 2412.01523).
[[nodiscard]] const std::vector<std::pair<std::string, LengthPoints>>& published_lengths();

}  // namespace maestro
