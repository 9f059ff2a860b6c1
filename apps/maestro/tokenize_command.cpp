// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/tokenize_command.hpp"

#include <algorithm>
#include <charconv>
#include <iostream>

#include "apps/maestro/json_lines.hpp"
#include "runtime/core/hub_cache.hpp"
#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/observe/printed_line.hpp"

namespace maestro {

using nlohmann::json;

namespace {

/// Numbers between spaces or commas.
std::vector<std::int32_t> ids_of(std::string_view text) {
  std::vector<std::int32_t> ids;
  constexpr std::string_view between = " ,\t\n";
  for (std::size_t at = text.find_first_not_of(between); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(between, at), text.size());
    std::int32_t id = 0;
    const auto [stop, failure] = std::from_chars(text.data() + at, text.data() + end, id);
    if (failure != std::errc() || stop != text.data() + end) {
      throw JobError("tokenize --decode: \"" + printable(text.substr(at, end - at)) +
                     "\" is no token id; give whole numbers with spaces or commas between them");
    }
    ids.push_back(id);
    at = text.find_first_not_of(between, end);
  }
  return ids;
}

void check_id(const Tokenizer& tokenizer, std::int64_t id, const std::string& where) {
  if (id >= 0 && id < tokenizer.vocabulary()) return;
  throw JobError(where + ": no token has the id " + std::to_string(id) + "; ids are 0 to " +
                 std::to_string(tokenizer.vocabulary() - 1));
}

/// The ids of a JSON array.
std::vector<std::int32_t> ids_of(const json& value, const Tokenizer& tokenizer, const std::string& where) {
  std::vector<std::int32_t> ids;
  const bool array =
      value.is_array() && std::ranges::all_of(value, [](const json& id) { return id.is_number_integer(); });
  if (!array) throw JobError(where + " is " + shown(value) + "; it must be an array of ids");
  for (const json& id : value) {
    check_id(tokenizer, id.get<std::int64_t>(), where);
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

}  // namespace

TokenizeCommand::TokenizeCommand(CLI::App& app)
    : command_(app.add_subcommand("tokenize", "print the tokens of a text, or the text of tokens")) {
  command_->add_option("tokenizer", model_, "a model's folder or name on the hub, its tokenizer file, or bytes")
      ->required();
  auto* text = command_->add_option("text", text_, "the text; with --decode: token ids");
  command_
      ->add_option("--jsonl", lines_,
                   "a file with a JSON string a line (with --decode: an array of ids); - is standard input")
      ->excludes(text);
  command_->add_flag("--decode", decode_, "print the text of token ids");
  command_->add_flag("--special", special_, "add the special tokens that the tokenizer's file puts around a text");
}

int TokenizeCommand::run(Console& /*console*/) const {
  if (command_->count("text") + command_->count("--jsonl") == 0) {
    throw JobError("tokenize: give a text, or --jsonl FILE");
  }
  std::unique_ptr<Tokenizer> tokenizer = std::make_unique<ByteTokenizer>();
  if (model_ != "bytes") tokenizer = open_tokenizer(find_model(model_).value_or_throw()).value_or_throw();
  lines_.empty() ? run_text(*tokenizer) : run_lines(*tokenizer);
  std::cout.flush();
  return std::cout ? 0 : 1;
}

void TokenizeCommand::run_text(const Tokenizer& tokenizer) const {
  if (decode_) {
    const std::vector<std::int32_t> ids = ids_of(text_);
    for (const std::int32_t id : ids) check_id(tokenizer, id, "tokenize");
    print_foreign_text(tokenizer.decode(ids) + "\n");
    return;
  }
  if (valid_utf8_prefix(text_) != text_.size()) throw JobError("tokenize: the text is no UTF-8");
  for (const std::int32_t id : special_ ? tokenizer.encode_special(text_) : tokenizer.encode(text_)) {
    std::cout << id << "\t" << printable(tokenizer.piece(id)) << "\n";
  }
}

void TokenizeCommand::run_lines(const Tokenizer& tokenizer) const {
  for_json_lines(lines_, "tokenize", [&](const std::string& where, const json& value) {
    if (decode_) {
      std::cout << json(tokenizer.decode(ids_of(value, tokenizer, where))).dump() << "\n";
      return;
    }
    if (!value.is_string()) throw JobError(where + " is " + shown(value) + "; it must be a text");
    const auto text = value.get<std::string>();
    std::cout << json(special_ ? tokenizer.encode_special(text) : tokenizer.encode(text)).dump() << "\n";
  });
}

}  // namespace maestro
