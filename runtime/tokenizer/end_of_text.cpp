// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/end_of_text.hpp"

#include <string>

#include "runtime/core/input_file.hpp"
#include "runtime/tokenizer/json_node.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;

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
  const json settings = parse_json(read_text(file).value_or_throw(), file.string()).value_or_throw();
  try {
    const JsonNode node = JsonNode(settings, "").at(key);
    return node.null() ? std::nullopt : read(node);
  } catch (const JobError& problem) {
    throw JobError(file.string() + ": " + problem.what());
  }
}

}  // namespace

Result<Token> read_end_of_text(const Tokenizer& tokenizer, const fs::path& folder) {
  const auto refuse = [&](const JsonNode& node) {
    node.fail("= " + shown(node.value()) + " is no token of " + std::string(tokenizer.name()));
  };
  const auto by_name = [&](const JsonNode& node) {  // a text, or {"content": text}
    const Token token = token_of(tokenizer, node.value().is_object() ? node.at("content").text() : node.text());
    if (!token) refuse(node);
    return token;
  };
  const auto by_id = [&](const JsonNode& node) -> Token {  // an id, or [id, ...]
    if (node.value().is_array() && node.value().empty()) return std::nullopt;
    const std::int32_t id = node.value().is_array() ? node.list().front().id() : node.id();
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
