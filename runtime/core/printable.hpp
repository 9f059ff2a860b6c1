// SPDX-License-Identifier: Apache-2.0
// User input as printable text for a message of a single line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace maestro {

/// Longest part of a value that a message shows.
inline constexpr std::size_t longest_shown = 120;  // bytes

/// Returns `text` as valid UTF-8 without control characters: a line break as \n, other control characters and bytes
/// that are not UTF-8 as \xNN. Text beyond `longest` bytes is replaced by "...".
[[nodiscard]] std::string printable(std::string_view text, std::size_t longest = longest_shown);
/// Returns the shortest decimal that reads back as the same value.
[[nodiscard]] std::string number_text(double value);

}  // namespace maestro
