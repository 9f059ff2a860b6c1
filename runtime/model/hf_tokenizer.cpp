// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_tokenizer.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/core/json_text.hpp"
#include "runtime/files/posix_file.hpp"
#include "runtime/model/hf_keys.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

using Tokens = std::map<std::int64_t, std::string>;  // tokens by id

std::int64_t id_of(const JsonValue& value) {
  return value.whole_number(0, INT32_MAX);
}

/// Adds a vocabulary, which maps tokens to ids (BPE, WordPiece, WordLevel) or lists [token, score] by id (Unigram).
void add_vocabulary(const JsonValue& vocabulary, Tokens& tokens) {
  if (vocabulary.json().is_object()) {
    for (const auto& [token, id] : vocabulary.members()) tokens[id_of(id)] = token;
    return;
  }
  std::int64_t id = 0;
  for (const JsonValue& entry : vocabulary.items()) {
    const std::vector<JsonValue> parts = entry.items();
    if (parts.empty()) entry.expected("a token and its score");
    tokens[id++] = parts.front().text();
  }
}

Tokens tokens_of(const HfKeys& keys) {
  Tokens tokens;
  add_vocabulary(keys.find("model").at("vocab"), tokens);
  if (const JsonValue added = keys.find("added_tokens")) {
    for (const JsonValue& token : added.items()) tokens[id_of(token.at("id"))] = token.at("content").text();
  }
  return tokens;
}

/// Returns the tokens in a file of another kind than tokenizer.json.
Result<Tokens> opened_tokens(const fs::path& file) {
  const auto tokenizer = open_tokenizer(file);
  if (!tokenizer) return tokenizer.error();
  Tokens tokens;
  const auto count = static_cast<std::int32_t>((*tokenizer)->vocabulary());
  for (std::int32_t id = 0; id < count; ++id) tokens[id] = (*tokenizer)->piece(id);
  return tokens;
}

Result<Tokens> read_tokens(const fs::path& file) {
  if (file.extension() != ".json" || file.filename() == "vocab.json") return opened_tokens(file);
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  return parse_hf_keys(*text, file.string(), tokens_of);
}

/// Returns the text at `key` in a file's object: a string, or the content of an added token; empty if neither.
std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return "";
  const json text = found->is_object() ? found->value("content", json()) : *found;
  return text.is_string() ? text.get<std::string>() : "";
}

/// Returns the object that names the special tokens of a folder's tokenizer.
Result<json> special_names(const fs::path& folder) {
  std::error_code failure;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (!fs::exists(folder / name, failure)) continue;
    const Result<std::string> text = read_text(folder / name);
    if (!text) return text.error();
    return parse_hf_keys(*text, (folder / name).string(), [](const HfKeys& keys) { return keys.json(); });
  }
  if (fs::exists(folder / "tokenizer.json", failure)) return json::object();
  return json{{"bos_token", "<s>"}, {"eos_token", "</s>"}};
}

std::string quoted(const Tokens& tokens, std::int64_t id) {
  const auto found = tokens.find(id);
  return found == tokens.end() ? "missing" : json(found->second).dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace

std::optional<fs::path> find_tokenizer(const fs::path& folder) {
  std::error_code failure;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (fs::exists(folder / name, failure)) return folder / name;
  }
  const bool pair = fs::exists(folder / "vocab.json", failure) && fs::exists(folder / "merges.txt", failure);
  return pair ? std::optional(folder / "vocab.json") : std::nullopt;
}

Status check_same_tokens(const fs::path& first, const fs::path& second, std::int64_t rows) {
  const auto one = read_tokens(first);
  if (!one) return one.error();
  const auto other = read_tokens(second);
  if (!other) return other.error();
  for (std::int64_t id = 0; id < rows; ++id) {
    const std::string mine = quoted(*one, id), theirs = quoted(*other, id);
    if (mine == theirs) continue;
    return Error{ErrorCode::invalid_argument, first.string() + " and " + second.string() + " differ: token " +
                                                  std::to_string(id) + " is " + mine + " in the first and " + theirs +
                                                  " in the second"};
  }
  return {};
}

Result<SpecialTokens> read_special_tokens(const fs::path& folder) {
  const auto file = find_tokenizer(folder);
  if (!file) return SpecialTokens();
  const Result<json> names = special_names(folder);
  if (!names) return names.error();
  const Result<Tokens> tokens = read_tokens(*file);
  if (!tokens) return tokens.error();
  const auto id_of = [&](const char* key) -> std::optional<std::int64_t> {
    const std::string text = text_at(*names, key);
    const auto found = std::ranges::find(*tokens, text, &Tokens::value_type::second);
    return text.empty() || found == tokens->end() ? std::nullopt : std::optional(found->first);
  };
  return SpecialTokens{id_of("bos_token"), id_of("eos_token"), id_of("pad_token")};
}

}  // namespace maestro
