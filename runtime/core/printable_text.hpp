// SPDX-License-Identifier: Apache-2.0
// Whole texts of others as printable text.
#pragma once

#include <string>
#include <string_view>

namespace maestro {

/// As printable(), and nothing is left out.
[[nodiscard]] std::string printable_line(std::string_view line);
/// As printable_line(), of a text of several lines: line breaks and tabs stay.
[[nodiscard]] std::string printable_text(std::string_view text);

}  // namespace maestro
