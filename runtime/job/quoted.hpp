// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace maestro {

/// Returns a string as a TOML value, for --set.
[[nodiscard]] inline std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

}  // namespace maestro
