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

/// Ids of the special tokens with which texts begin and end, and with which batches are filled.
struct SpecialTokens {
  std::optional<std::int64_t> bos;
  std::optional<std::int64_t> eos;
  std::optional<std::int64_t> pad;
};
/// Reads them from tokenizer_config.json, else special_tokens_map.json; a tokenizer.model alone has "<s>" and "</s>".
/// A token that neither names or that the tokenizer lacks has no id. Errors name the file that cannot be read.
[[nodiscard]] Result<SpecialTokens> read_special_tokens(const std::filesystem::path& folder);

}  // namespace maestro
