// SPDX-License-Identifier: Apache-2.0
// The one way in for JSON of users. Not a public header: only sources that read JSON include it.
//
// JT-1: no document that is read nests deeper than most_json_levels, so that recursive code (dump, ==, copies) is safe.
// JT-2: every failure, of memory too, is an Error of one line with the name of the text and the place there: line and
//       column, or the path of keys. No exception of the library leaves these functions.
// JT-3: an object that is read has each key once; readers differ in what a second one means.
// JT-4: a number that no double holds is refused, never rounded to infinity.
#pragma once

#include <cstddef>
#include <functional>
#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

namespace maestro {

inline constexpr std::size_t most_json_levels = 64;

/// The document in `text`, which messages call `name`.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text, const std::string& name);

/// A list that may be larger than memory, and the words for messages.
struct JsonList {
  std::istream& text;
  std::string name;
  std::string elements;  ///< in the plural: "conversations"
};
/// Calls `sink` with every element, one at a time. JobErrors of the sink pass through.
Status parse_json_list(const JsonList& list, const std::function<void(nlohmann::json&&)>& sink);

/// A value as a message shows it: compact, in one line, cut at the usual length.
[[nodiscard]] std::string shown(const nlohmann::json& value);

/// "samples[3].id" and a key behind it; the path of the whole text is empty.
[[nodiscard]] std::string join_json_path(const std::string& path, std::string_view key);

}  // namespace maestro
