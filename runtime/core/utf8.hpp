// SPDX-License-Identifier: Apache-2.0
// UTF-8 as defined by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace maestro {

/// Returns the bytes of the longest valid prefix; equal to text.size() if the text is UTF-8.
[[nodiscard]] std::size_t valid_utf8_prefix(std::string_view text);

/// Returns `text` with U+FFFD in place of invalid bytes: a U+FFFD for the longest beginning of a character that nothing
/// continues, or for a single byte (Unicode 16, section 3.9, "substitution of maximal subparts").
[[nodiscard]] std::string repaired_utf8(std::string_view text);

/// The byte order mark, U+FEFF. At the start of a file it states the encoding and is not a character of the text.
inline constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
/// Returns `text` without leading byte order marks.
[[nodiscard]] std::string_view without_mark(std::string_view text);

/// Returns "UTF-16" or "UTF-32" for the first bytes of a text in that encoding: by its byte order mark or, without one,
/// by the NUL bytes between ASCII characters. Returns an empty text for others.
[[nodiscard]] std::string_view wide_encoding(std::string_view head);

}  // namespace maestro
