// SPDX-License-Identifier: Apache-2.0
// A range of rows, or of vocabulary tokens, and its division into equal parts. Pure.
#pragma once

#include <cstdint>

namespace maestro {

struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  [[nodiscard]] constexpr std::int64_t end() const { return first + count; }
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

/// Returns part `index` of `parts` of `rows` rows; parts differ by at most a row and may be empty.
[[nodiscard]] constexpr RowRange row_part(std::int64_t rows, std::int64_t parts, std::int64_t index) {
  const std::int64_t first = rows * index / parts;
  return {first, rows * (index + 1) / parts - first};
}

}  // namespace maestro
