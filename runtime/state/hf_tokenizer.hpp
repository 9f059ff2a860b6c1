// SPDX-License-Identifier: Apache-2.0
// Tokenizer files of Hugging Face folders: finding them, and checking whether two define the same tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "runtime/core/result.hpp"

namespace maestro {

/// tokenizer.json, else tokenizer.model, else vocab.json beside merges.txt; nothing: the folder has no tokenizer.
[[nodiscard]] std::optional<std::filesystem::path> find_tokenizer(const std::filesystem::path& folder);

/// Compares two tokenizer files by meaning: the token of every id below `rows`, added tokens included, whatever the
/// files' layout. Of a tokenizer.json only the tokens are read, so that it may be of any kind. Errors
/// (invalid_argument) name both files with the first id that differs and its tokens, or a file that is no tokenizer.
[[nodiscard]] Status check_same_tokens(const std::filesystem::path& first, const std::filesystem::path& second,
                                       std::int64_t rows);

}  // namespace maestro
