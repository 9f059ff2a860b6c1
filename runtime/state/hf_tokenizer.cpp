// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/hf_tokenizer.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/state/hf_keys.hpp"
#include "runtime/state/posix_file.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

using Tokens = std::map<std::int64_t, std::string>;  // by id

/// The vocabulary maps tokens to ids (BPE, WordPiece, WordLevel), or lists [token, score] in order of ids (Unigram).
void add_vocabulary(const json& vocabulary, Tokens& tokens) {
  if (vocabulary.is_object()) {
    for (const auto& [token, id] : vocabulary.items()) tokens[id.get<std::int64_t>()] = token;
    return;
  }
  std::int64_t id = 0;
  for (const json& entry : vocabulary) tokens[id++] = entry.at(0).get<std::string>();
}

Tokens tokens_of(const json& object, std::string_view where) {
  try {
    Tokens tokens;
    add_vocabulary(object.at("model").at("vocab"), tokens);
    if (const auto added = object.find("added_tokens"); added != object.end() && !added->is_null()) {
      for (const json& token : *added)
        tokens[token.at("id").get<std::int64_t>()] = token.at("content").get<std::string>();
    }
    return tokens;
  } catch (const json::exception& problem) {
    throw JobError(std::string(where) + " is no tokenizer that can be compared: " + problem.what());
  }
}

/// The tokens of another kind of file than tokenizer.json.
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

}  // namespace maestro
