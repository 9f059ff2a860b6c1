// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>

namespace maestro {

/// Returns the text with spaces behind it up to `width` characters, two at least: a column of a table.
[[nodiscard]] inline std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size() + 2, width), ' ');
  return text;
}

}  // namespace maestro
