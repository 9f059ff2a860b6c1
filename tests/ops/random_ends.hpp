// SPDX-License-Identifier: Apache-2.0
// Random values of SequenceLayout::ends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace maestro::testing {

/// Returns an end for each row of packed sequences: runs of rows that see their run's end, and causal rows.
inline std::vector<std::int32_t> random_ends(std::mt19937& generator, const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> ends;
  for (const std::int64_t length : lengths) {
    for (std::int64_t row = 0; row < length;) {
      const auto run = static_cast<std::int64_t>(generator() % 3 == 0 ? 1 + generator() % 90 : 1);
      const std::int64_t end = std::min(row + run, length);
      ends.insert(ends.end(), static_cast<std::size_t>(end - row), static_cast<std::int32_t>(end));
      row = end;
    }
  }
  return ends;
}

}  // namespace maestro::testing
