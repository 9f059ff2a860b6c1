// SPDX-License-Identifier: Apache-2.0
// How much of a text another text contains: what a chat template has left of a message.
//
// KT-1 (whole at once): a text that is contained as it is, but for white space around it, takes one search.
// KT-2 (bounded): a text that is not takes a time that grows with the sum of both lengths, by a constant number of
//       searches.
#pragma once

#include <cstddef>
#include <string_view>

namespace maestro {

/// Returns `text` without white space around it.
[[nodiscard]] std::string_view trimmed(std::string_view text);
/// Returns the number of characters of UTF-8 without white space.
[[nodiscard]] std::size_t count_characters(std::string_view text);

/// Returns the characters of `part`, which is trimmed, that are in `whole`: all, also if it is there as JSON spells
/// it; else those of its lines and thoughts (up to </think>) that are there, and of others the longest beginning or
/// end.
[[nodiscard]] std::size_t kept_characters(std::string_view part, std::string_view whole);

}  // namespace maestro
