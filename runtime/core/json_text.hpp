// SPDX-License-Identifier: Apache-2.0
// The only reader of users' JSON. Not a public header: only sources that read JSON include it.
//
// JT-1 (depth): no document that is read nests deeper than most_json_levels, so that recursive code (dump, ==, copies)
//       is safe.
// JT-2 (errors): every failure to parse, of memory too, is an Error of a single line with the name of the text and the
//       position in it: line and column (of a text of a single line the column, and of a list NAME:LINE and the
//       column), or the path of keys. No exception of the library leaves these functions.
// JT-3 (unique keys): an object has each key once; JSON readers disagree on the meaning of a repeated key.
// JT-4 (range): a number outside the range of double is refused, never rounded to infinity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

namespace maestro {

inline constexpr std::size_t most_json_levels = 64;

/// Parses the document in `text`, which messages call `name`.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text, const std::string& name);

/// A list that may be larger than memory, and its names for messages.
struct JsonList {
  std::istream& text;
  std::string name;
  std::string elements;  ///< in the plural: "conversations"
};
/// Calls `sink` with every element in order. JobErrors of the sink pass through.
Status parse_json_list(const JsonList& list, const std::function<void(nlohmann::json&&)>& sink);

/// Parses an object that may have more members than memory should hold at once, and calls `sink` with every member in
/// order. JobErrors of the sink pass through.
Status parse_json_members(std::string_view text, const std::string& name,
                          const std::function<void(const std::string& key, nlohmann::json&& value)>& sink);

/// Returns a value for a message: compact, on a single line, truncated to the usual length.
[[nodiscard]] std::string shown(const nlohmann::json& value);

/// Returns the path with a key appended, as "samples[3].id"; the path of the whole text is empty.
[[nodiscard]] std::string join_json_path(const std::string& path, std::string_view key);

}  // namespace maestro
