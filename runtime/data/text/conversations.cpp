// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text/conversations.hpp"

#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/dataset/byte_source.hpp"
#include "runtime/dataset/row_files.hpp"

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
        return wrong("\"" + std::string(key) + "\" must be an image name or a list of image names");
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

enum class Speaker { system, question, answer };

/// Collects the turns of an entry: repairs the faults in RowRepair and refuses all others.
class TurnReader {
 public:
  /// Adds conversations[number].
  [[nodiscard]] Status add(const json& turn, std::size_t number) {
    which_ = "conversations[" + std::to_string(number) + "]";
    const auto from = text_at(turn, "from");
    auto value = text_at(turn, "value");
    if (!from || !value) return wrong(which_ + " needs the strings \"from\" and \"value\"");
    from_ = *from;
    if (from_ == "system") return add(Speaker::system, *std::move(value));
    if (from_ == "human" || from_ == "user") return add(Speaker::question, *std::move(value));
    if (from_ == "gpt" || from_ == "assistant") return add(Speaker::answer, *std::move(value));
    return wrong(which_ + " is from \"" + printable(from_) + "\"; valid are human, user, gpt, assistant and system");
  }
  /// Ends the turns and ensures that each image of the conversation has a placeholder.
  [[nodiscard]] Status end(Conversation& out) {
    if (turns_.empty()) return wrong("the conversation lacks a question");
    if (turns_.size() == 1) return wrong("the conversation ends without an answer");
    std::size_t placeholders = 0;
    for (const std::string& turn : turns_) placeholders += placeholders_in(turn);
    if (placeholders == 0 && !out.images.empty()) {
      std::string before;
      for (std::size_t at = 0; at < out.images.size(); ++at) before.append(image_placeholder).append("\n");
      turns_.front().insert(0, before);
      repaired_.insert(RowRepair::images_first);
    } else if (placeholders != out.images.size()) {
      return wrong(counted(placeholders, "<image> placeholder") + ", but " + counted(out.images.size(), "image"));
    }
    if (turns_.size() % 2 != 0) {
      out.images.resize(out.images.size() - placeholders_in(turns_.back()));
      turns_.pop_back();
      repaired_.insert(RowRepair::question_cut);
    }
    out.repairs.assign(repaired_.begin(), repaired_.end());
    out.turns = std::move(turns_);
    out.system = std::move(system_);
    return {};
  }

 private:
  [[nodiscard]] Status add(Speaker speaker, std::string text) {
    if (speaker != Speaker::question && placeholders_in(text) > 0) {
      return wrong(which_ + " is from \"" + printable(from_) + "\" and has <image>; only questions may have it");
    }
    const bool begins = turns_.empty();
    if (begins && speaker == Speaker::answer) {
      repaired_.insert(RowRepair::answer_dropped);
      return {};
    }
    if (begins && speaker == Speaker::system && !repaired_.contains(RowRepair::system_kept)) {
      system_ = std::move(text);
      repaired_.insert(RowRepair::system_kept);
      return {};
    }
    if (speaker == Speaker::system) {
      return wrong(which_ + " is from \"system\", but a single system text is allowed, before the first question");
    }
    if ((speaker == Speaker::question) != (turns_.size() % 2 == 0)) {
      return wrong(which_ + " is from \"" + printable(from_) +
                   "\", but questions and answers must take turns, a question first");
    }
    if (speaker == Speaker::answer && text.empty()) return wrong(which_ + " is an empty answer");
    turns_.push_back(std::move(text));
    return {};
  }

  std::string which_, from_;  // position and speaker of the current turn, for messages
  std::string system_;
  std::vector<std::string> turns_;
  std::set<RowRepair> repaired_;
};

/// Returns the conversation of an entry. `archived`: names of its row's images in an archive; null: the images are
/// files, which the entry names.
Result<Conversation> conversation_of(const json& entry, std::string id, const std::vector<std::string>* archived) {
  if (!entry.is_object()) return wrong("the entry is not an object");
  auto names = names_of(entry);
  if (!names) return names.error();
  if (archived != nullptr && !names->empty() && names->size() != archived->size()) {
    return wrong("it names " + counted(names->size(), "image") + ", but its archive row has " +
                 counted(archived->size(), "image"));
  }
  if (archived != nullptr) *names = *archived;
  const auto turns = entry.find("conversations");
  if (turns == entry.end() || !turns->is_array()) return wrong("the list \"conversations\" is missing");
  if (turns->empty()) return wrong("the conversation is empty");
  Conversation out;
  out.id = std::move(id);
  out.images = *std::move(names);
  TurnReader reader;
  for (std::size_t at = 0; at < turns->size(); ++at) {
    if (const Status added = reader.add((*turns)[at], at); !added) return added.error();
  }
  if (const Status ended = reader.end(out); !ended) return ended.error();
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

Result<Conversation> captioned(std::string id, const std::vector<std::string>& images, std::string caption) {
  if (images.empty()) return wrong("a caption without an image");
  if (caption.empty()) return wrong("an empty caption");
  std::string question;
  for (std::size_t at = 0; at < images.size(); ++at) question += image_placeholder;
  Conversation out;
  out.id = std::move(id);
  out.images = images;
  out.turns = {std::move(question), std::move(caption)};
  return out;
}

Result<Conversation> conversation_of(TarRow& row, const json& entry, std::string id) {
  std::vector<std::string> names;
  for (const TarImage& image : row.pictures) names.push_back(image.name);
  const bool has_turns = entry.is_object() && entry.contains("conversations");
  if (row.text && has_turns) return wrong("it has a caption (.txt) and a conversation (.json)");
  if (row.text) return captioned(std::move(id), names, *std::move(row.text));
  return conversation_of(entry, std::move(id), &names);
}

/// Returns the number of unused .json members.
std::uint64_t read_archive(const fs::path& file, const ConversationSink& sink) {
  std::uint64_t unread = 0;
  read_tar_rows(file, [&](TarRow&& row) -> Status {
    const std::string where = file.string() + ": " + printable(row.stem);
    if (!row.pictures.empty() && !row.pictures.front().position) {
      return wrong(printable(file.string()) +
                   " is compressed, so its images cannot be read one at a time; "
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
      conversation->members.resize(conversation->images.size());  // a question that was cut took its images with it
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
      throw JobError("[data] path: " + printable(path) + " is a folder, but " + printable(file.string()) +
                     " in it is not a tar archive; give the JSON file of the conversations, or a folder of archives");
    } else {
      check_is_json(file, "conversations about images").or_throw();
      (kind == RowFileKind::json_lines ? read_lines(file, sink) : read_list(file, sink)).or_throw();
    }
  }
  return unread;
}

}  // namespace maestro
