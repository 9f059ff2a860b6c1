// SPDX-License-Identifier: Apache-2.0
// `maestro tokenize MODEL TEXT`: the tokens of a text, or the text of tokens.
#include <algorithm>
#include <charconv>
#include <iostream>

#include "apps/maestro/commands.hpp"
#include "apps/maestro/models/json_lines.hpp"
#include "runtime/core/hub_cache.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/observe/printed_line.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

using nlohmann::json;

namespace {

struct TokenizeArguments {
  const CLI::App* command = nullptr;  ///< whether a text was given, which may be empty
  std::string model;
  std::string text;
  std::string lines;  ///< a file
  bool decode = false;
  bool special = false;
};

/// Returns the numbers between spaces or commas.
std::vector<std::int32_t> ids_of(std::string_view text) {
  std::vector<std::int32_t> ids;
  constexpr std::string_view between = " ,\t\n";
  for (std::size_t at = text.find_first_not_of(between); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(between, at), text.size());
    std::int32_t id = 0;
    const auto [stop, failure] = std::from_chars(text.data() + at, text.data() + end, id);
    if (failure != std::errc() || stop != text.data() + end) {
      throw JobError("tokenize --decode: \"" + printable(text.substr(at, end - at)) +
                     "\" is not a token id; give whole numbers with spaces or commas between them");
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

/// Returns the ids of a JSON array.
std::vector<std::int32_t> ids_of(const JsonValue& value, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  for (const JsonValue& id : value.items()) {
    check_id(tokenizer, id.whole_number(INT64_MIN), value.file());
    ids.push_back(id.json().get<std::int32_t>());
  }
  return ids;
}

void print_text(const TokenizeArguments& arguments, const Tokenizer& tokenizer) {
  if (arguments.decode) {
    const std::vector<std::int32_t> ids = ids_of(arguments.text);
    for (const std::int32_t id : ids) check_id(tokenizer, id, "tokenize");
    print_foreign_text(tokenizer.decode(ids) + "\n");
    return;
  }
  if (valid_utf8_prefix(arguments.text) != arguments.text.size()) throw JobError("tokenize: the text is not UTF-8");
  for (const std::int32_t id :
       arguments.special ? tokenizer.encode_special(arguments.text) : tokenizer.encode(arguments.text)) {
    std::cout << id << "\t" << printable(tokenizer.piece(id)) << "\n";
  }
}

void print_lines(const TokenizeArguments& arguments, const Tokenizer& tokenizer) {
  for_json_lines(arguments.lines, "tokenize", [&](const JsonValue& value) {
    if (arguments.decode) {
      std::cout << json(tokenizer.decode(ids_of(value, tokenizer))).dump() << "\n";
      return;
    }
    const std::string text = value.text();
    std::cout << json(arguments.special ? tokenizer.encode_special(text) : tokenizer.encode(text)).dump() << "\n";
  });
}

int run_tokenize(const TokenizeArguments& arguments, Console& /*console*/) {
  if (arguments.command->count("text") + arguments.command->count("--jsonl") == 0) {
    throw JobError("tokenize: give a text, or --jsonl FILE");
  }
  std::unique_ptr<Tokenizer> tokenizer = std::make_unique<ByteTokenizer>();
  if (arguments.model != "bytes")
    tokenizer = open_tokenizer(find_model(arguments.model).value_or_throw()).value_or_throw();
  arguments.lines.empty() ? print_text(arguments, *tokenizer) : print_lines(arguments, *tokenizer);
  std::cout.flush();
  return std::cout ? 0 : 1;
}

}  // namespace

void add_tokenize(Commands& commands) {
  const auto [command, arguments] =
      commands.add("tokenize", "print the tokens of a text, or the text of tokens", run_tokenize);
  arguments.command = &command;
  command.add_option("tokenizer", arguments.model, "a model's folder or name on the hub, its tokenizer file, or bytes")
      ->required();
  auto* text = command.add_option("text", arguments.text, "the text; with --decode: token ids");
  command
      .add_option("--jsonl", arguments.lines,
                  "a file with a JSON string a line (with --decode: an array of ids); - is standard input")
      ->excludes(text);
  command.add_flag("--decode", arguments.decode, "print the text of token ids");
  command.add_flag("--special", arguments.special,
                   "add the special tokens that the tokenizer's file puts around a text");
}

}  // namespace maestro
