// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/conversations.hpp"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "runtime/core/input_file.hpp"
#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

Error wrong(std::string reason) {
  return {ErrorCode::invalid_argument, std::move(reason)};
}

std::string counted(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::size_t placeholders_in(std::string_view text) {
  std::size_t count = 0;
  for (auto at = text.find(image_placeholder); at != text.npos; at = text.find(image_placeholder, at + 1)) ++count;
  return count;
}

std::string id_of(const json& entry, std::size_t number) {
  if (entry.is_object()) {
    const auto id = entry.find("id");
    if (id != entry.end() && id->is_string()) return id->get<std::string>();
    if (id != entry.end() && id->is_number_integer()) return id->dump();
  }
  return "#" + std::to_string(number);
}

Result<std::vector<std::string>> names_of(const json& entry) {
  std::vector<std::string> names;
  for (const char* key : {"image", "images"}) {
    const auto value = entry.find(key);
    if (value == entry.end() || value->is_null()) continue;
    const json list = value->is_array() ? *value : json::array({*value});
    for (const json& name : list) {
      if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
        return wrong("\"" + std::string(key) + "\" must be the name of a picture or a list of names");
      }
      names.push_back(name.get<std::string>());
    }
  }
  return names;
}

std::optional<std::string> text_at(const json& turn, const char* key) {
  if (!turn.is_object()) return std::nullopt;
  const auto value = turn.find(key);
  if (value == turn.end() || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

/// The turn's text when it is a question or an answer as its number demands.
Result<std::string> turn_of(const json& turn, std::size_t number) {
  const std::string which = "conversations[" + std::to_string(number) + "]";
  const auto from = text_at(turn, "from");
  auto value = text_at(turn, "value");
  if (!from || !value) return wrong(which + " needs the strings \"from\" and \"value\"");
  const bool question = *from == "human" || *from == "user";
  if (!question && *from != "gpt" && *from != "assistant") {
    return wrong(which + " is from \"" + printable(*from) + "\"; valid are human, user, gpt and assistant");
  }
  if (question != (number % 2 == 0)) {
    return wrong(which + " is from \"" + printable(*from) +
                 "\", but questions and answers must take turns, a question first");
  }
  if (!question && value->empty()) return wrong(which + " is an empty answer");
  if (!question && placeholders_in(*value) > 0) {
    return wrong(which + " has <image> in an answer; only questions may");
  }
  return *std::move(value);
}

Result<Conversation> conversation_of(const json& entry, std::string id) {
  if (!entry.is_object()) return wrong("the entry is not an object");
  auto names = names_of(entry);
  if (!names) return names.error();
  const auto turns = entry.find("conversations");
  if (turns == entry.end() || !turns->is_array()) return wrong("there is no list \"conversations\"");
  if (turns->empty()) return wrong("the conversation is empty");
  Conversation out{std::move(id), *std::move(names), {}};
  std::size_t placeholders = 0;
  for (const json& turn : *turns) {
    auto text = turn_of(turn, out.turns.size());
    if (!text) return text.error();
    placeholders += placeholders_in(*text);
    out.turns.push_back(*std::move(text));
  }
  if (out.turns.size() % 2 != 0) return wrong("the conversation ends without an answer");
  if (placeholders != out.images.size()) {
    return wrong(counted(placeholders, "<image> placeholder") + ", but " + counted(out.images.size(), "picture"));
  }
  return out;
}

}  // namespace

void parse_conversations(std::istream& text, const std::string& name, const ConversationSink& sink) {
  std::size_t entries = 0;
  parse_json_list({text, name, "conversations"}, [&](const json& entry) {
    const std::string id = id_of(entry, ++entries);
    sink(id, conversation_of(entry, id));
  }).or_throw();
}

void read_conversations(const std::string& path, const ConversationSink& sink) {
  if (path.empty()) throw JobError("[data] path is missing; give a JSON file of conversations");
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    fs::path existing = fs::absolute(path).lexically_normal();
    while (!fs::exists(existing, ignored) && existing.has_relative_path()) existing = existing.parent_path();
    throw JobError(
        "[data] path: " + printable(path) + " does not exist; the part that exists is " + printable(existing.string()),
        ErrorCode::not_found);
  }
  if (fs::is_directory(path, ignored))
    throw JobError("[data] path: " + printable(path) + " is a folder; give its JSON file");
  check_readable_kind(path).or_throw();
  errno = 0;
  std::ifstream text(path, std::ios::binary);
  if (!text) {
    throw JobError("[data] path: cannot read " + printable(path) + ": " + std::generic_category().message(errno),
                   ErrorCode::unavailable);
  }
  parse_conversations(text, path, sink);
}

}  // namespace maestro
