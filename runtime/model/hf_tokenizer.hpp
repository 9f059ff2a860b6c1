// SPDX-License-Identifier: Apache-2.0
// Finds tokenizer files in Hugging Face folders, and checks whether two files define the same tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "runtime/core/result.hpp"

namespace maestro {

/// Returns tokenizer.json, else tokenizer.model, else vocab.json if merges.txt exists; nothing without a tokenizer.
[[nodiscard]] std::optional<std::filesystem::path> find_tokenizer(const std::filesystem::path& folder);

/// Compares two tokenizer files by meaning: the token of every id below `rows`, added tokens included, independent of
/// the files' layout. Only the tokens of a tokenizer.json are read, so it may be of any kind. Errors (invalid_argument)
/// name both files with the first id that differs and its tokens, or a file that is not a tokenizer.
[[nodiscard]] Status check_same_tokens(const std::filesystem::path& first, const std::filesystem::path& second,
                                       std::int64_t rows);

/// Ids of the special tokens that begin and end texts, and that fill batches.
struct SpecialTokens {
  std::optional<std::int64_t> bos;
  std::optional<std::int64_t> eos;
  std::optional<std::int64_t> pad;
};
/// Reads the special tokens from tokenizer_config.json, else special_tokens_map.json; with only a tokenizer.model, they
/// are "<s>" and "</s>". The id of a token that neither file names or that the tokenizer lacks stays empty. Errors name
/// the file that cannot be read.
[[nodiscard]] Result<SpecialTokens> read_special_tokens(const std::filesystem::path& folder);

}  // namespace maestro
