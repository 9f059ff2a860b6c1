// SPDX-License-Identifier: Apache-2.0
// Counts how much of a text another text contains, to compare a message with a chat template's text.
//
// KT-1 (whole at once): if the text is contained unchanged, except for white space around it, one search is enough.
// KT-2 (bounded): otherwise, the number of searches is bounded by a constant, and the time grows with the sum of both
//       lengths.
#pragma once

#include <cstddef>
#include <string_view>

namespace maestro {

/// Returns `text` without white space around it.
[[nodiscard]] std::string_view trimmed(std::string_view text);
/// Returns the number of UTF-8 characters without white space.
[[nodiscard]] std::size_t count_characters(std::string_view text);

/// Returns how many characters of `part`, a trimmed text, are in `whole`: all if `part` is contained unchanged or in
/// JSON spelling. Otherwise, contained lines and thoughts (up to </think>) count, and the longest contained beginning
/// or end of other lines.
[[nodiscard]] std::size_t kept_characters(std::string_view part, std::string_view whole);

}  // namespace maestro
