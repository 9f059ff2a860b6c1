// SPDX-License-Identifier: Apache-2.0
// The valid name that a user most likely intended, for error messages.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace maestro {

/// Returns the smallest number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`,
/// no part edited twice (optimal string alignment, the restricted Damerau-Levenshtein distance). Bytes, not characters.
/// O(|a| |b|) time, O(|b|) memory.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate nearest to `name`, or nothing if none is a likely misspelling: more than a third of the longer
/// name would have to change. Upper and lower case and '-' and '_' count as equal, except to break a tie; then the
/// earlier candidate wins. Pure; any thread.
[[nodiscard]] std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates);

/// Returns "; did you mean 'vision'?" or "; there are: ...", the end of a refusal of a name; empty if none is known.
[[nodiscard]] std::string nearest_text(std::string_view name, std::span<const std::string> known);

}  // namespace maestro
