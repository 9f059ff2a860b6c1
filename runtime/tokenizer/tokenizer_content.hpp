// SPDX-License-Identifier: Apache-2.0
// The content of a tokenizer.json as a tokenizer. Not a public header: only sources that read JSON include it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "runtime/core/json_value.hpp"
#include "runtime/core/result.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

inline constexpr std::size_t largest_tokenizer_file = std::size_t{1} << 29;  ///< bytes; Gemma's has 2^25

[[nodiscard]] inline std::int32_t token_id(const JsonValue& id) {
  constexpr std::int64_t last = (1 << 24) - 1;
  return static_cast<std::int32_t>(id.whole_number(0, last));
}

/// Returns the tokenizer that a tokenizer.json with this content describes. Errors name `file` and the key.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> make_text_tokenizer(const nlohmann::json& content,
                                                                     const std::filesystem::path& file);

}  // namespace maestro
