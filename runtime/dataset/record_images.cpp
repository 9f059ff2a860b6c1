// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/record_images.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

Error wrong(std::string reason) {
  return {ErrorCode::invalid_argument, std::move(reason)};
}

std::string counted(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

/// Returns an object without its absent values.
json without_absent(const json& object) {
  json made = json::object();
  for (const auto& [key, value] : object.items()) {
    if (!value.is_null()) made[key] = value;
  }
  return made;
}

std::string place_of(std::size_t message) {
  return "messages[" + std::to_string(message) + "]";
}

/// Returns the number of a message after the messages with the numbers `removed` are gone.
void renumber(std::vector<std::size_t>& numbers, std::size_t first, std::size_t count) {
  std::erase_if(numbers, [&](std::size_t number) { return number >= first && number < first + count; });
  for (std::size_t& number : numbers) number -= number >= first ? count : 0;
}

}  // namespace

Result<RecordImages::Part> RecordImages::read_part(const json& value, const std::string& where) {
  const json part = value.is_object() ? without_absent(value) : json();
  const json type = part.is_object() ? part.value("type", json()) : json();
  const auto refused = [&] {
    return wrong(where + " has the part " + shown(value) +
                 R"(; parts are {"type": "text", "text": TEXT}, {"type": "image"} and {"type": "image_url"})");
  };
  if (type == "text" && part.contains("text") && part["text"].is_string()) return Part{false, part["text"], {}};
  if (type != "image" && type != "image_url") return refused();
  Part made{true, {}, {}};
  json source = json::object();
  for (const auto& [key, each] : part.items()) {
    const bool of_type = key == "type" || (key == "text" && each == "");
    if (of_type) continue;
    if (key == "index") {  // of TRL's data
      std::size_t before = 0;
      for (const auto& [message, parts] : parts_) {
        before += static_cast<std::size_t>(std::ranges::count_if(parts, [](const Part& p) { return p.is_image; }));
      }
      if (each != before)
        return wrong(where + ".index is " + shown(each) + "; the next image has " + std::to_string(before));
    } else {
      source[key == "image_url" ? "url" : key] = each;
    }
  }
  if (source.empty()) return made;
  Result<RowImage> image = read_row_image(source, where, media_);
  if (!image) return image.error();
  made.image = *std::move(image);
  return made;
}

Result<std::string> RecordImages::read_content(const json& value, const std::string& where, std::size_t message) {
  Parts& parts = parts_[message];
  if (value.is_string()) {
    parts.push_back({false, value.get<std::string>(), {}});
    return parts.back().text;
  }
  if (!value.is_array()) return wrong(where + " is " + shown(value) + "; it must be a text or a list of parts");
  std::string text;
  for (std::size_t at = 0; at < value.size(); ++at) {
    Result<Part> part = read_part(value[at], where + "[" + std::to_string(at) + "]");
    if (!part) return part.error();
    if (!part->is_image) text += (text.empty() ? "" : "\n") + part->text;
    parts.push_back(*std::move(part));
  }
  return text;
}

Status RecordImages::read_columns(const json& row) {
  std::size_t named = 0;
  for (const char* column : {"image", "images"}) {
    const auto found = row.find(column);
    if (found == row.end() || found->is_null() || (found->is_string() && *found == "")) continue;
    const json list = found->is_array() ? *found : json::array({*found});
    for (std::size_t at = 0; at < list.size(); ++at) {
      if (list[at].is_null()) continue;
      ++named;
      if (!media_.members.empty()) continue;
      const std::string where =
          "\"" + std::string(column) + "\"" + (found->is_array() ? "[" + std::to_string(at) + "]" : "");
      Result<RowImage> image = read_row_image(list[at], where, media_);
      if (!image) return image.error();
      columns_.push_back(*std::move(image));
    }
  }
  if (named > 0 && !media_.members.empty() && named != media_.members.size()) {
    return wrong("it names " + counted(named, "image") + ", but its row in the archive has " +
                 counted(media_.members.size(), "image"));
  }
  for (TarImage& member : media_.members) {
    RowImage image;
    image.name = member.name;
    image.member = std::move(member);
    columns_.push_back(std::move(image));
  }
  return {};
}

void RecordImages::drop_first_answers(Record& record) {
  std::vector<ChatMessage>& messages = record.messages;
  if (std::ranges::any_of(messages, [](const ChatMessage& each) { return each.role == "system"; })) {
    record.repairs.push_back(RowNote::system_kept);
  }
  const auto first = std::ranges::find_if(messages, [](const ChatMessage& each) { return each.role != "system"; });
  const auto end =
      std::find_if(first, messages.end(), [](const ChatMessage& each) { return each.role != "assistant"; });
  if (first == end) return;
  const auto begin = static_cast<std::size_t>(first - messages.begin());
  const auto count = static_cast<std::size_t>(end - first);
  messages.erase(first, end);
  renumber(record.unlearned, begin, count);
  std::map<std::size_t, Parts> parts;
  for (auto& [message, held] : parts_) {
    if (message < begin || message >= begin + count)
      parts[message < begin ? message : message - count] = std::move(held);
  }
  parts_ = std::move(parts);
  record.repairs.push_back(RowNote::answer_dropped);
}

/// Divides a text at its markers, by default without the white space next to them.
RecordImages::Parts RecordImages::split_at_markers(std::string_view text) const {
  constexpr std::string_view spaces = " \t\r\n";
  Parts made;
  for (bool first = true;; first = false) {
    const std::size_t at = text.find(image_marker);
    std::string_view piece = text.substr(0, at);
    if (!first && !spaced_) piece.remove_prefix(std::min(piece.find_first_not_of(spaces), piece.size()));
    if (at != text.npos && !spaced_) piece = piece.substr(0, piece.find_last_not_of(spaces) + 1);
    if (!piece.empty()) made.push_back({false, std::string(piece), {}});
    if (at == text.npos) return made;
    made.push_back({true, {}, {}});
    text.remove_prefix(at + image_marker.size());
  }
}

Status RecordImages::split_markers(Record& record) {
  for (auto& [message, parts] : parts_) {
    const std::string& role = record.messages[message].role;
    Parts made;
    for (Part& part : parts) {
      const bool marked = !part.is_image && part.text.find(image_marker) != std::string::npos;
      if (role != "user" && role != "tool" && (marked || part.is_image)) {
        return wrong(place_of(message) + " is from \"" + printable(role) + "\" and has " +
                     (marked ? "<image>" : "an image") + "; only questions may have it");
      }
      if (!marked) {
        made.push_back(std::move(part));
        continue;
      }
      for (Part& piece : split_at_markers(part.text)) made.push_back(std::move(piece));
    }
    parts = std::move(made);
  }
  return {};
}

void RecordImages::put_first(Record& record) {
  for (auto& [message, parts] : parts_) {
    if (record.messages[message].role != "user") continue;
    for (std::size_t image = 0; image < columns_.size(); ++image) {
      if (spaced_) parts.insert(parts.begin(), Part{false, "\n", {}});
      parts.insert(parts.begin(), Part{true, {}, {}});
    }
    record.repairs.push_back(RowNote::images_first);
    return;
  }
}

void RecordImages::drop_last_questions(Record& record) {
  std::size_t end = record.messages.size();
  while (end > 0 && record.messages[end - 1].role != "assistant") --end;
  if (end == 0 || end == record.messages.size()) return;
  record.messages.resize(end);
  parts_.erase(parts_.lower_bound(end), parts_.end());
  record.repairs.push_back(RowNote::question_cut);
}

Status RecordImages::finish(Record& record) {
  if (media_.unread_json) record.repairs.push_back(RowNote::json_unread);
  if (const Status split = split_markers(record); !split) return split;
  const auto places = [&] {
    std::size_t count = 0;
    for (const auto& [message, parts] : parts_) {
      count += static_cast<std::size_t>(
          std::ranges::count_if(parts, [](const Part& part) { return part.is_image && !part.image; }));
    }
    return count;
  };
  if (places() == 0 && !columns_.empty()) put_first(record);
  if (places() != columns_.size()) {
    return wrong(counted(places(), "place") + " for images (<image>, or a part without an image), but " +
                 counted(columns_.size(), "image"));
  }
  std::size_t next = 0;  // counts also images of questions that are cut
  for (auto& [message, parts] : parts_) {
    for (Part& part : parts) {
      if (part.is_image && !part.image) part.image = std::move(columns_[next++]);
    }
  }
  drop_last_questions(record);
  for (auto& [message, parts] : parts_) {
    ordered_json content = ordered_json::array();
    std::string text;
    for (Part& part : parts) {
      if (part.is_image) {
        content.push_back({{"type", "image"}});
        record.images.push_back(*std::move(part.image));
        record.image_messages.push_back(message);
      } else if (!part.text.empty() || record.messages[message].role != "assistant") {
        content.push_back({{"type", "text"}, {"text", part.text}});
        text += (text.empty() ? "" : "\n") + part.text;
      }
    }
    ChatMessage& made = record.messages[message];
    ordered_json fields = made.fields.empty() ? ordered_json::object() : ordered_json::parse(made.fields);
    fields["content"] = std::move(content);
    made.fields = fields.dump();
    made.content = std::move(text);
  }
  return {};
}

}  // namespace maestro
