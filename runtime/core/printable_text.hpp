// SPDX-License-Identifier: Apache-2.0
// Complete foreign texts as printable text.
#pragma once

#include <string>
#include <string_view>

namespace maestro {

/// Returns the line as printable(), without leaving anything out.
[[nodiscard]] std::string printable_line(std::string_view line);
/// Returns a text of several lines as printable_line(); line breaks and tabs stay.
[[nodiscard]] std::string printable_text(std::string_view text);

}  // namespace maestro
