// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/end_of_text.hpp"

#include <string>

#include "runtime/core/input_file.hpp"
#include "runtime/tokenizer/tokenizer_content.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

using Token = std::optional<std::int32_t>;

Token token_of(const Tokenizer& tokenizer, const std::string& piece) {
  const auto count = static_cast<std::int32_t>(tokenizer.vocabulary());
  for (std::int32_t id = 0; id < count; ++id) {
    if (tokenizer.piece(id) == piece) return id;
  }
  return std::nullopt;
}

/// Passes the value under a key of a file to `read`; nothing where the file or the value is absent.
template <class Read>
Token token_at(const fs::path& file, const char* key, const Read& read) {
  std::error_code failure;
  if (!fs::exists(file, failure)) return std::nullopt;
  return read_json(read_text(file).value_or_throw(), file.string(), ErrorCode::corrupt,
                   [&](const JsonValue& root) {
                     const JsonValue node = root.find(key);
                     return node ? read(node) : std::nullopt;
                   })
      .value_or_throw();
}

}  // namespace

Result<Token> read_end_of_text(const Tokenizer& tokenizer, const fs::path& folder) {
  const auto refuse = [&](const JsonValue& node) { node.refuse("is no token of " + std::string(tokenizer.name())); };
  const auto by_name = [&](const JsonValue& node) {  // a text, or {"content": text}
    const Token token = token_of(tokenizer, node.json().is_object() ? node.find("content").text() : node.text());
    if (!token) refuse(node);
    return token;
  };
  const auto by_id = [&](const JsonValue& node) -> Token {  // an id, or [id, ...]
    if (node.json().is_array() && node.json().empty()) return std::nullopt;
    const std::int32_t id = token_id(node.json().is_array() ? node.items().front() : node);
    if (id >= tokenizer.vocabulary()) refuse(node);
    return id;
  };
  try {
    Token found = token_at(folder / "tokenizer_config.json", "eos_token", by_name);
    if (!found) found = token_at(folder / "generation_config.json", "eos_token_id", by_id);
    return found ? found : token_of(tokenizer, "<|endoftext|>");
  } catch (const JobError& problem) {
    return Error{problem.code(), problem.what()};
  }
}

}  // namespace maestro
