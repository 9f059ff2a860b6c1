// SPDX-License-Identifier: Apache-2.0
// User input made fit for a one-line message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace maestro {

/// What a message shows of one value.
inline constexpr std::size_t longest_shown = 120;  // bytes

/// `text` as valid UTF-8 without control characters: a line break as \n, other control characters and bytes that are no
/// UTF-8 as \xNN. Everything beyond `longest` bytes of the text is replaced by "...".
[[nodiscard]] std::string printable(std::string_view text, std::size_t longest = longest_shown);
/// Shortest decimal that reads back as the same value.
[[nodiscard]] std::string number_text(double value);

}  // namespace maestro
