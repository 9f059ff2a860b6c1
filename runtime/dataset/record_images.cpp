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

namespace {

/// Refuses a part of the other kind, by the kind's name.
Error other_kind(const std::string& where, const Medium& medium) {
  return wrong(where + " has " + one_of(medium == image_medium ? sound_medium : image_medium) +
               ", but the model reads " + std::string(medium.noun) + "s; leave the row out, or name another model");
}

}  // namespace

Media media_of(ImagesOfRows images) {
  const Media all(all_media);
  if (images == ImagesOfRows::refused || images == ImagesOfRows::both) {
    return images == ImagesOfRows::both ? all : Media();
  }
  return images == ImagesOfRows::sounds ? all.last(1) : all.first(1);
}

Result<RecordImages::Part> RecordImages::read_part(const json& value, const std::string& where) {
  const json part = value.is_object() ? without_absent(value) : json();
  const json type = part.is_object() ? part.value("type", json()) : json();
  if (type == "text" && part.contains("text") && part["text"].is_string()) return Part{nullptr, part["text"], {}};
  const auto named = [&](const Medium& medium) { return type == medium.type || type == medium.url; };
  const auto medium = std::ranges::find_if(read_, named);
  if (medium == read_.end()) {
    if (std::ranges::any_of(all_media, named)) return other_kind(where, read_.front());
    std::string kinds;
    for (const Medium& each : read_) {
      kinds += R"(, {"type": ")" + std::string(each.type) + R"("} and {"type": ")" + std::string(each.url) + R"("})";
    }
    return wrong(where + " has the part " + shown(value) + R"(; parts are {"type": "text", "text": TEXT})" + kinds);
  }
  media_.medium = *medium;
  Part made{&*medium, {}, {}};
  json source = json::object();
  for (const auto& [key, each] : part.items()) {
    const bool of_type = key == "type" || (key == "text" && each == "");
    if (of_type) continue;
    if (key == "index") {  // of TRL's data
      std::size_t before = 0;
      for (const auto& [message, parts] : parts_) {
        before +=
            static_cast<std::size_t>(std::ranges::count_if(parts, [&](const Part& p) { return p.medium == &*medium; }));
      }
      if (each != before)
        return wrong(where + ".index is " + shown(each) + "; the next " + std::string(medium->noun) + " has " +
                     std::to_string(before));
    } else {
      source[key == medium->url ? "url" : key] = each;
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
    parts.push_back({nullptr, value.get<std::string>(), {}});
    return parts.back().text;
  }
  if (!value.is_array()) return wrong(where + " is " + shown(value) + "; it must be a text or a list of parts");
  std::string text;
  for (std::size_t at = 0; at < value.size(); ++at) {
    Result<Part> part = read_part(value[at], where + "[" + std::to_string(at) + "]");
    if (!part) return part.error();
    if (!part->is_image()) text += (text.empty() ? "" : "\n") + part->text;
    parts.push_back(*std::move(part));
  }
  return text;
}

Status RecordImages::read_column(const json& row, const Medium& medium) {
  std::size_t named = 0;
  std::vector<RowImage>& found_images = columns_of(medium);
  media_.medium = medium;
  for (const std::string& column : {std::string(medium.column), std::string(medium.column) + "s"}) {
    const auto found = row.find(column);
    if (found == row.end() || found->is_null() || (found->is_string() && *found == "")) continue;
    const json list = found->is_array() ? *found : json::array({*found});
    for (std::size_t at = 0; at < list.size(); ++at) {
      if (list[at].is_null()) continue;
      ++named;
      if (!media_.members.empty()) continue;
      const std::string where = "\"" + column + "\"" + (found->is_array() ? "[" + std::to_string(at) + "]" : "");
      Result<RowImage> image = read_row_image(list[at], where, media_);
      if (!image) return image.error();
      found_images.push_back(*std::move(image));
    }
  }
  if (media_.members.empty()) return {};
  for (const TarImage& member : media_.members) {
    if (medium_of(std::string_view(member.head), read_) != medium) continue;
    RowImage image;
    image.name = member.name;
    image.member = member;
    image.modality = medium.modality;
    found_images.push_back(std::move(image));
  }
  if (named == 0 || named == found_images.size()) return {};
  const std::string noun(medium.noun);
  return wrong("it names " + counted(named, noun) + ", but its row in the archive has " +
               counted(found_images.size(), noun));
}

Status RecordImages::read_columns(const json& row) {
  for (const Medium& medium : read_) {
    if (const Status read = read_column(row, medium); !read) return read;
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
    const Medium* next = nullptr;
    std::size_t at = text.npos;
    for (const Medium& medium : read_) {
      const std::size_t found = text.find(medium.marker);
      if (found < at) {
        at = found;
        next = &medium;
      }
    }
    std::string_view piece = text.substr(0, at);
    if (!first && !spaced_) piece.remove_prefix(std::min(piece.find_first_not_of(spaces), piece.size()));
    if (next != nullptr && !spaced_) piece = piece.substr(0, piece.find_last_not_of(spaces) + 1);
    if (!piece.empty()) made.push_back({nullptr, std::string(piece), {}});
    if (next == nullptr) return made;
    made.push_back({next, {}, {}});
    text.remove_prefix(at + next->marker.size());
  }
}

Status RecordImages::split_markers(Record& record) {
  for (auto& [message, parts] : parts_) {
    const std::string& role = record.messages[message].role;
    Parts made;
    for (Part& part : parts) {
      const auto marks = [&](const Medium& medium) { return part.text.find(medium.marker) != std::string::npos; };
      const auto mark = part.is_image() ? read_.end() : std::ranges::find_if(read_, marks);
      const bool marked = mark != read_.end();
      if (role != "user" && role != "tool" && (marked || part.is_image())) {
        return wrong(place_of(message) + " is from \"" + printable(role) + "\" and has " +
                     (marked ? std::string(mark->marker) : one_of(*part.medium)) + "; only questions may have it");
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

void RecordImages::put_first(Record& record, const Medium& medium) {
  for (auto& [message, parts] : parts_) {
    if (record.messages[message].role != "user") continue;
    for (std::size_t image = 0; image < columns_of(medium).size(); ++image) {
      if (spaced_) parts.insert(parts.begin(), Part{nullptr, "\n", {}});
      parts.insert(parts.begin(), Part{&medium, {}, {}});
    }
    record.repairs.push_back(RowNote::images_first);
    return;
  }
}

std::size_t RecordImages::places_of(const Medium& medium) const {
  std::size_t count = 0;
  for (const auto& [message, parts] : parts_) {
    count += static_cast<std::size_t>(
        std::ranges::count_if(parts, [&](const Part& part) { return part.medium == &medium && !part.image; }));
  }
  return count;
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
  // The kinds that are put first stand in their order: images before sounds.
  for (auto medium = read_.rbegin(); medium != read_.rend(); ++medium) {
    if (places_of(*medium) == 0 && !columns_of(*medium).empty()) put_first(record, *medium);
  }
  for (const Medium& medium : read_) {
    std::vector<RowImage>& columns = columns_of(medium);
    if (const std::size_t places = places_of(medium); places != columns.size()) {
      const std::string noun(medium.noun);
      return wrong(counted(places, "place") + " for " + noun + "s (" + std::string(medium.marker) +
                   ", or a part without " + one_of(medium) + "), but " + counted(columns.size(), noun));
    }
    std::size_t next = 0;  // counts also images of questions that are cut
    for (auto& [message, parts] : parts_) {
      for (Part& part : parts) {
        if (part.medium == &medium && !part.image) part.image = std::move(columns[next++]);
      }
    }
  }
  drop_last_questions(record);
  for (auto& [message, parts] : parts_) {
    ordered_json content = ordered_json::array();
    std::string text;
    for (Part& part : parts) {
      if (part.is_image()) {
        content.push_back({{"type", part.medium->type}});
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
