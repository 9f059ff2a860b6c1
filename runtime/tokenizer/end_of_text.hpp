// SPDX-License-Identifier: Apache-2.0
// The token that ends a text, by the files next to a tokenizer. Not a public header: see Tokenizer::end_of_text().
#pragma once

#include <filesystem>
#include <optional>

#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

/// Returns the token that ends a text: eos_token of `folder`/tokenizer_config.json, else the (first) eos_token_id of
/// `folder`/generation_config.json, else the token <|endoftext|>, else nothing. Errors name the file and the key:
/// invalid JSON, a value of another type, a token that the tokenizer lacks.
[[nodiscard]] Result<std::optional<std::int32_t>> read_end_of_text(const Tokenizer& tokenizer,
                                                                   const std::filesystem::path& folder);

}  // namespace maestro
