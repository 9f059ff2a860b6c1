// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/conversations.hpp"

#include <filesystem>
#include <optional>
#include <system_error>

#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/records/byte_source.hpp"
#include "runtime/records/row_files.hpp"

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

/// Returns the conversation of an entry. `beside`: the pictures of its row in an archive; null: it names files.
Result<Conversation> conversation_of(const json& entry, std::string id, const std::vector<std::string>* beside) {
  if (!entry.is_object()) return wrong("the entry is not an object");
  auto names = names_of(entry);
  if (!names) return names.error();
  if (beside != nullptr && !names->empty() && names->size() != beside->size()) {
    return wrong("it names " + counted(names->size(), "picture") + ", but " + counted(beside->size(), "picture") +
                 " lie beside it");
  }
  if (beside != nullptr) *names = *beside;
  const auto turns = entry.find("conversations");
  if (turns == entry.end() || !turns->is_array()) return wrong("there is no list \"conversations\"");
  if (turns->empty()) return wrong("the conversation is empty");
  Conversation out;
  out.id = std::move(id);
  out.images = *std::move(names);
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
    sink(id, conversation_of(entry, id, nullptr));
  }).or_throw();
}

namespace {

Status read_list(const fs::path& file, const ConversationSink& sink) {
  const Result<std::unique_ptr<TextStreamBuffer>> buffer = TextStreamBuffer::open(file);
  if (!buffer) return buffer.error();
  std::istream text(buffer->get());
  parse_conversations(text, file.string(), sink);
  return (*buffer)->error();
}

Status read_lines(const fs::path& file, const ConversationSink& sink) {
  std::size_t entries = 0;
  return read_rows(file, RowFileKind::json_lines, [&](Row&& row) {
    const Result<json> entry = parse_json(row.content, row.where);
    const std::string id = entry ? id_of(*entry, ++entries) : "#" + std::to_string(++entries);
    sink(id, entry ? conversation_of(*entry, id, nullptr) : entry.error());
  });
}

Result<Conversation> captioned(std::string id, const std::vector<std::string>& pictures, std::string caption) {
  if (pictures.empty()) return wrong("a caption without a picture");
  if (caption.empty()) return wrong("an empty caption");
  std::string question;
  for (std::size_t at = 0; at < pictures.size(); ++at) question += image_placeholder;
  Conversation out;
  out.id = std::move(id);
  out.images = pictures;
  out.turns = {std::move(question), std::move(caption)};
  return out;
}

Result<Conversation> conversation_of(TarRow& row, const json& entry, std::string id) {
  std::vector<std::string> names;
  for (const TarPicture& picture : row.pictures) names.push_back(picture.name);
  const bool has_turns = entry.is_object() && entry.contains("conversations");
  if (row.text && has_turns) return wrong("it has a caption (.txt) and a conversation (.json)");
  if (row.text) return captioned(std::move(id), names, *std::move(row.text));
  return conversation_of(entry, std::move(id), &names);
}

/// Returns the number of members .json without effect.
std::uint64_t read_archive(const fs::path& file, const ConversationSink& sink) {
  std::uint64_t unread = 0;
  read_tar_rows(file, [&](TarRow&& row) -> Status {
    const std::string where = file.string() + ": " + printable(row.stem);
    if (!row.pictures.empty() && !row.pictures.front().position) {
      return wrong(printable(file.string()) +
                   " is compressed, so that its pictures cannot be read one by one; "
                   "decompress it");
    }
    Result<json> entry = row.json ? parse_json(*row.json, where + ".json") : json();
    const std::string id = entry && entry->is_object() && entry->contains("id") ? id_of(*entry, 0) : row.stem;
    if (!entry) {
      sink(id, entry.error());
      return {};
    }
    if (row.json && row.text) ++unread;
    Result<Conversation> conversation = conversation_of(row, *entry, id);
    if (conversation) {
      conversation->archive = file;
      conversation->members = std::move(row.pictures);
    }
    sink(id, std::move(conversation));
    return {};
  }).or_throw();
  return unread;
}

}  // namespace

std::uint64_t read_conversations(const std::string& path, const ConversationSink& sink) {
  if (path.empty()) throw JobError("[data] path is missing; give a JSON file of conversations");
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    fs::path existing = fs::absolute(path).lexically_normal();
    while (!fs::exists(existing, ignored) && existing.has_relative_path()) existing = existing.parent_path();
    throw JobError(
        "[data] path: " + printable(path) + " does not exist; the part that exists is " + printable(existing.string()),
        ErrorCode::not_found);
  }
  const bool folder = fs::is_directory(path, ignored);
  std::uint64_t unread = 0;
  for (const fs::path& file : row_files({path})) {
    const RowFileKind kind = kind_of_rows(file).value_or_throw();
    if (kind == RowFileKind::webdataset) {
      unread += read_archive(file, sink);
    } else if (folder) {
      throw JobError("[data] path: " + printable(path) + " is a folder, in which " + printable(file.string()) +
                     " is no tar archive; give the JSON file of the conversations, or a folder of archives");
    } else {
      check_is_json(file, "conversations about pictures").or_throw();
      (kind == RowFileKind::json_lines ? read_lines(file, sink) : read_list(file, sink)).or_throw();
    }
  }
  return unread;
}

}  // namespace maestro
