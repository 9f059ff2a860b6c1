// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>

namespace maestro {

/// Returns the text followed by spaces up to `width` characters, at least two: a column of a table.
[[nodiscard]] inline std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size() + 2, width), ' ');
  return text;
}

}  // namespace maestro
