// SPDX-License-Identifier: Apache-2.0
// Sample length distributions, as points of their survival function.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace maestro {

/// The share of samples, in (0, 1], that have at least `length` tokens.
struct LengthPoint {
  std::int64_t length = 0;
  double share = 1;
  friend bool operator==(const LengthPoint&, const LengthPoint&) = default;
};
/// Lengths rise and shares fall, starting at 1; all samples of the last point have its length.
using LengthPoints = std::vector<LengthPoint>;

/// Returns distributions that resemble published data, by name: byted and github as in ByteScale (arXiv 2502.21231),
/// commoncrawl and wikipedia as in FlexSP (arXiv 2412.01523).
[[nodiscard]] const std::vector<std::pair<std::string, LengthPoints>>& published_lengths();

}  // namespace maestro
