// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/record_format.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

Error wrong(std::string reason) {
  return {ErrorCode::invalid_argument, std::move(reason)};
}

std::string columns_of(const json& row) {
  std::string text;
  for (const auto& [key, value] : row.items()) text += (text.empty() ? "" : ", ") + printable(key);
  return text.empty() ? "none" : text;
}

template <class Json>
bool is_absent(const Json& value) {
  return value.is_null() || (value.is_array() && value.empty()) || (value.is_object() && value.empty());
}

/// A row with its keys in the order of the file: templates print objects in this order. Parsed at the first use, since
/// few rows have keys whose values reach a template.
class OrderedRow {
 public:
  /// Keeps `text`, which is a valid JSON object.
  explicit OrderedRow(std::string_view text) : text_(text) {}
  [[nodiscard]] const ordered_json& at(const std::string& column) {
    if (!row_) row_ = ordered_json::parse(text_);
    return row_->at(column);
  }

 private:
  std::string_view text_;
  std::optional<ordered_json> row_;
};

/// A row, and the record that is read from it.
struct RowInput {
  const json& row;
  OrderedRow& ordered;
  Record& record;
  RecordImages* images = nullptr;  // null: images are refused
};

/// Returns a text, or the joined parts of a list of texts.
Result<std::string> content_of(const json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return wrong(where + " is " + shown(value) + "; it must be a text or a list of texts");
  std::string text;
  for (const json& part : value) {
    const bool is_text =
        part.is_object() && part.value("type", json()) == "text" && part.contains("text") && part["text"].is_string();
    if (!is_text) {
      return wrong(where + " has the part " + shown(part) +
                   R"(; parts are {"type": "text", "text": TEXT}, and data.processor (--model) reads images)");
    }
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

/// Returns the templates' name for a role; unknown names stay unchanged.
std::string role_of(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> roles{
      {{"human", "user"}, {"gpt", "assistant"}, {"model", "assistant"}, {"bot", "assistant"}, {"observation", "tool"}}};
  const auto found = std::ranges::find(roles, name, [](const auto& each) { return each.first; });
  return found == roles.end() ? name : std::string(found->second);
}

/// The two keys of a message in a kind of list.
struct MessageKeys {
  const char* role;
  const char* content;
};

/// Reads "weight", which decides whether an answer is learned.
Status add_weight(const json& weight, const std::string& where, Record& record) {
  const bool whole = weight.is_number() && (weight == 0 || weight == 1);
  if (!whole) {
    return wrong(where + ".weight is " + shown(weight) + "; it must be 1 (the answer is learned) or 0 (it is not)");
  }
  const bool answer = record.messages.back().role == "assistant";
  if (weight == 1 && !answer) {
    return wrong(where + ".weight is 1, but the message is from \"" + printable(record.messages.back().role) +
                 "\"; only messages of the assistant are learned");
  }
  if (weight == 0 && answer) record.unlearned.push_back(record.messages.size() - 1);
  return {};
}

/// Returns a message's keys for the template, without absent values; `content`: the content, too.
std::string fields_of(const ordered_json& message, MessageKeys keys, bool content) {
  ordered_json fields = ordered_json::object();
  if (content) fields["content"] = message.value(keys.content, ordered_json());
  for (const auto& [key, value] : message.items()) {
    if (key != keys.role && key != keys.content && key != "weight" && !is_absent(value)) fields[key] = value;
  }
  return fields.empty() ? "" : fields.dump();
}

/// Adds a ShareGPT tool call: its value is the call as JSON.
Status add_call(const json& value, const std::string& where, MessageKeys keys, Record& record) {
  const json text = value.value(keys.content, json());
  const ordered_json call =
      text.is_string() ? ordered_json::parse(text.get_ref<const std::string&>(), nullptr, false) : ordered_json();
  if (!call.is_object() || !call.contains("name")) {
    return wrong(where + "." + keys.content + " is " + shown(text) +
                 R"(; a function_call is the text of {"name": NAME, "arguments": {...}})");
  }
  ordered_json fields;
  fields["content"] = nullptr;
  fields["tool_calls"] = ordered_json::array({ordered_json{{"type", "function"}, {"function", call}}});
  record.messages.push_back({"assistant", "", fields.dump()});
  return {};
}

Status add_message(const json& value, const std::string& where, MessageKeys keys, const RowInput& in,
                   const std::function<const ordered_json&()>& ordered) {
  Record& record = in.record;
  if (!value.is_object() || !value.contains(keys.role) || !value[keys.role].is_string()) {
    return wrong(where + " is " + shown(value) + "; a message is {\"" + keys.role + "\": TEXT, \"" + keys.content +
                 "\": TEXT}");
  }
  const auto& name = value[keys.role].get_ref<const std::string&>();
  if (name == "function_call") return add_call(value, where, keys, record);
  const bool more = std::ranges::any_of(value.items(), [&](const auto& item) {
    return item.key() != keys.role && item.key() != keys.content && item.key() != "weight" && !is_absent(item.value());
  });
  ChatMessage message{role_of(name), "", ""};
  const json content = value.value(keys.content, json());
  // As in transformers, an answer with only tool calls, and a result that is an object, stay unchanged.
  const bool as_it_is = (content.is_null() && message.role == "assistant" && more) ||
                        (content.is_object() && message.role != "assistant" && message.role != "user");
  if (!as_it_is) {
    const std::string place = where + "." + keys.content;
    Result<std::string> text = in.images != nullptr ? in.images->read_content(content, place, record.messages.size())
                                                    : content_of(content, place);
    if (!text) return text.error();
    message.content = *std::move(text);
  }
  if (more || as_it_is) message.fields = fields_of(ordered(), keys, as_it_is);
  record.messages.push_back(std::move(message));
  const auto weight = value.find("weight");
  return weight == value.end() || weight->is_null() ? Status() : add_weight(*weight, where, record);
}

Status add_messages(const RowInput& in, const char* column, MessageKeys keys) {
  const auto found = in.row.find(column);
  if (found == in.row.end() || !found->is_array() || found->empty()) {
    return wrong("\"" + std::string(column) + "\" is " + shown(found == in.row.end() ? json() : *found) +
                 "; it must be a list of messages");
  }
  for (std::size_t at = 0; at < found->size(); ++at) {
    const auto ordered = [&]() -> const ordered_json& { return in.ordered.at(column)[at]; };
    const Status added =
        add_message((*found)[at], std::string(column) + "[" + std::to_string(at) + "]", keys, in, ordered);
    if (!added) return added;
  }
  return {};
}

Result<std::string> text_at(const json& row, std::string_view column) {
  const auto found = row.find(column);
  if (found == row.end()) {
    return wrong("\"" + std::string(column) + "\" is missing; the columns are " + columns_of(row));
  }
  if (!found->is_string()) return wrong("\"" + std::string(column) + "\" is " + shown(*found) + "; it must be a text");
  return found->get<std::string>();
}

/// Adds the text of an optional column as a message, or appends it to the last message if the role is the same.
Status add_optional(const json& row, const char* column, const char* role, std::vector<ChatMessage>& messages) {
  if (!row.contains(column) || row[column].is_null()) return {};
  Result<std::string> text = text_at(row, column);
  if (!text) return text.error();
  if (text->empty()) return {};
  if (!messages.empty() && messages.back().role == role) {
    messages.back().content += "\n\n" + *text;
  } else {
    messages.push_back({role, *std::move(text)});
  }
  return {};
}

/// Adds the column of a prompt or a completion: a text of `role`, or messages.
Status add_side(const RowInput& in, const char* column, const char* role) {
  if (in.row.contains(column) && in.row[column].is_array()) return add_messages(in, column, {"role", "content"});
  Result<std::string> text = text_at(in.row, column);
  if (!text) return text.error();
  if (in.images != nullptr) (void)in.images->read_content(*text, column, in.record.messages.size());
  in.record.messages.push_back({role, *std::move(text)});
  return {};
}

Status add_completion(const RowInput& in) {
  in.record.completion = in.row.value("prompt", json()).is_string() && in.row.value("completion", json()).is_string();
  if (const Status added = add_side(in, "prompt", "user"); !added) return added;
  return add_side(in, "completion", "assistant");
}

Status add_instruction(const json& row, std::vector<ChatMessage>& messages) {
  if (const Status added = add_optional(row, "system", "system", messages); !added) return added;
  Result<std::string> instruction = text_at(row, "instruction");
  if (!instruction) return instruction.error();
  messages.push_back({"user", *std::move(instruction)});
  if (const Status added = add_optional(row, "input", "user", messages); !added) return added;
  Result<std::string> output = text_at(row, "output");
  if (!output) return output.error();
  messages.push_back({"assistant", *std::move(output)});
  return {};
}

/// Reads the texts of messages that are there already.
Status read_texts(RecordImages& images, const Record& record) {
  for (std::size_t at = 0; at < record.messages.size(); ++at) {
    const Result<std::string> text = images.read_content(record.messages[at].content, "", at);
    if (!text) return text.error();
  }
  return {};
}

/// Adds the questions and answers of The Cauldron's and FineVision's rows.
Status add_dialogues(const json& row, RecordImages& images, Record& record) {
  const json& list = row["texts"];
  if (!list.is_array() || list.empty()) {
    return wrong("\"texts\" is " + shown(list) + R"(; it must be a list of {"user": TEXT, "assistant": TEXT})");
  }
  for (std::size_t at = 0; at < list.size(); ++at) {
    for (const char* role : {"user", "assistant"}) {
      const std::string where = "texts[" + std::to_string(at) + "]." + role;
      const auto found = list[at].is_object() ? list[at].find(role) : list[at].end();
      if (!list[at].is_object() || found == list[at].end() || !found->is_string()) {
        return wrong(where + " is missing, or is not a text");
      }
      record.messages.push_back({role, found->get<std::string>()});
    }
    for (const auto& [key, value] : list[at].items()) {
      if (key == "user" || key == "assistant" || key == "source" || is_absent(value)) continue;
      return wrong("texts[" + std::to_string(at) + "]." + printable(key) + " is not read; remove it");
    }
  }
  return read_texts(images, record);
}

/// Places the images of a row in its messages; `lists`: the row is of LLaVA's lists.
Status place_images(const json& row, RecordImages& images, bool lists, Record& record) {
  if (const Status read = images.read_columns(row); !read) return read;
  if (lists) {
    images.drop_first_answers(record);
    if (std::ranges::none_of(record.messages, [](const ChatMessage& each) { return each.role == "user"; })) {
      return wrong("the conversation lacks a question");
    }
  }
  return images.finish(record);
}

/// Returns the kind of a column, if it is one; null otherwise.
const Medium* medium_of_column(std::string_view column) {
  for (const Medium& medium : all_media) {
    if (column.starts_with(medium.column)) return &medium;
  }
  return nullptr;
}

/// Refuses columns whose meaning no format reads; `read`: the kinds that the model reads.
Status refuse_columns(const json& row, Media read) {
  for (const char* column : {"image", "images", "audio", "audios", "video", "videos", "documents"}) {
    const Medium* const own = medium_of_column(column);
    const bool is_read = own != nullptr && std::ranges::find(read, *own) != read.end();
    const bool video = std::string_view(column).starts_with("video");
    if (!row.contains(column) || is_absent(row[column]) || is_read || (video && read.empty())) continue;
    const std::string start = "the column \"" + std::string(column) + "\" ";
    if (own != nullptr && !read.empty()) {
      return wrong(start + "has " + std::string(own->noun) + "s, but the model reads " +
                   std::string(read.front().noun) + "s; remove it, or name another model");
    }
    return wrong(start + "is not read here; remove it" +
                 (own != nullptr ? ", or name the model whose processor reads it as data.processor (--model)" : ""));
  }
  return {};
}

/// Returns the value of a JSON column, which may be JSON in a text, in the order of its keys; null if absent.
Result<ordered_json> json_at(const RowInput& in, const char* column, json::value_t type) {
  const auto found = in.row.find(column);
  if (found == in.row.end() || is_absent(*found) || *found == "") return ordered_json();
  const std::string name = "\"" + std::string(column) + "\"";
  const bool list = type == json::value_t::array;
  Result<json> value = *found;
  if (found->is_string()) value = parse_json(found->get_ref<const std::string&>(), name);
  if (value && value->type() == type) {
    return found->is_string() ? ordered_json::parse(found->get_ref<const std::string&>()) : in.ordered.at(column);
  }
  if (value && value->is_null()) return ordered_json();
  return wrong(name + " is " + shown(*found) + "; it must be " + (list ? "a list" : "an object") +
               ", or the text of one");
}

/// Reads a conversation's tools and template variables.
Status add_tools(const RowInput& in) {
  Result<ordered_json> tools = json_at(in, "tools", json::value_t::array);
  if (!tools) return tools.error();
  if (tools->is_null()) {
    const Result<ordered_json> functions = json_at(in, "functions", json::value_t::array);
    if (!functions) return functions.error();
    for (const ordered_json& each : *functions) tools->push_back({{"type", "function"}, {"function", each}});
  }
  if (!is_absent(*tools)) in.record.tools = tools->dump();
  const Result<ordered_json> variables = json_at(in, "chat_template_kwargs", json::value_t::object);
  if (!variables) return variables.error();
  if (!is_absent(*variables)) in.record.variables = variables->dump();
  return {};
}

}  // namespace

std::string_view RecordFormat::name() const {
  constexpr std::array<std::string_view, 6> names{"messages",    "conversations", "completion",
                                                  "instruction", "text",          "dialogues"};
  return names[static_cast<std::size_t>(kind_)];
}

std::vector<std::string_view> RecordFormat::columns() const {
  std::vector<std::string_view> columns;
  switch (kind_) {
    case Kind::messages:
      columns = {"messages"};
      break;
    case Kind::conversations:
      columns = {"conversations", "system"};
      break;
    case Kind::completion:
      columns = {"prompt", "completion"};
      break;
    case Kind::instruction:
      columns = {"instruction", "output", "input", "system"};
      break;
    case Kind::dialogues:
      columns = {"texts"};
      break;
    case Kind::text:
      return {text_column_};
  }
  columns.insert(columns.end(), {"tools", "functions", "chat_template_kwargs"});
  for (const Medium& medium : media_of(images_)) {
    if (medium == image_medium) columns.insert(columns.end(), {"image", "images"});
    if (medium == sound_medium) columns.insert(columns.end(), {"audio", "audios"});
  }
  return columns;
}

std::optional<RecordFormat::Kind> RecordFormat::kind_of(const json& row, bool images) {
  const auto has = [&](const char* column) { return row.contains(column); };
  if (has("messages")) return Kind::messages;
  if (has("conversations")) return Kind::conversations;
  if (has("prompt") && has("completion")) return Kind::completion;
  if (has("instruction") && has("output")) return Kind::instruction;
  if (images && has("texts")) return Kind::dialogues;
  if (has("text")) return Kind::text;
  return std::nullopt;
}

Result<RecordFormat> RecordFormat::of(const json& row, const std::string& text_column, ImagesOfRows images) {
  const bool reads = images != ImagesOfRows::refused;
  if (!row.is_object()) return wrong("the row is " + shown(row) + "; it must be an object");
  std::optional<RecordFormat> format;
  if (!text_column.empty()) {
    if (!row.contains(text_column)) {
      return wrong("the column \"" + printable(text_column) + "\" is missing; the columns are " + columns_of(row));
    }
    format = RecordFormat(Kind::text, text_column, images);
  } else if (const std::optional<Kind> kind = kind_of(row, reads)) {
    format = RecordFormat(*kind, *kind == Kind::text ? "text" : "", images);
  }
  if (!format) {
    return wrong("the columns are " + columns_of(row) +
                 "; rows have messages, conversations, prompt and completion, instruction and output, " +
                 (reads ? "images and texts, " : "") +
                 "or text (data.field, or --field, names another column of text)");
  }
  const std::vector<std::string_view> read = format->columns();
  for (const auto& [key, value] : row.items()) {
    if (std::ranges::find(read, key) == read.end()) format->unread_.push_back(key);
  }
  return *std::move(format);
}

Result<RecordFormat> format_of_row(const Row& row, const std::string& text_column, ImagesOfRows images) {
  const Result<json> value = parse_json(row.content, row.where);
  if (!value) return value.error();
  Result<RecordFormat> format = RecordFormat::of(*value, text_column, images);
  if (!format) return Error{format.error().code, printable(row.where) + ": " + format.error().message};
  return format;
}

Result<Record> RecordFormat::read(const json& row, std::string_view text, RowMedia media) const {
  if (!row.is_object()) return wrong("the row is " + shown(row) + "; it must be an object");
  if (const Status allowed = refuse_columns(row, media_of(images_)); !allowed) return allowed.error();
  Record record;
  OrderedRow ordered(text);
  std::optional<RecordImages> images;
  if (has_images()) images.emplace(std::move(media), images_);
  const RowInput in{row, ordered, record, images ? &*images : nullptr};
  Status added;
  switch (kind_) {
    case Kind::messages:
      added = add_messages(in, "messages", {"role", "content"});
      break;
    case Kind::conversations:
      added = add_optional(row, "system", "system", record.messages);
      if (added && images) added = read_texts(*images, record);
      if (added) added = add_messages(in, "conversations", {"from", "value"});
      break;
    case Kind::completion:
      added = add_completion(in);
      break;
    case Kind::instruction:
      added = add_instruction(row, record.messages);
      if (added && images) added = read_texts(*images, record);
      break;
    case Kind::dialogues:
      added = add_dialogues(row, *images, record);
      break;
    case Kind::text: {
      Result<std::string> found = text_at(row, text_column_);
      if (!found) return found.error();
      record.text = *std::move(found);
      return record;
    }
  }
  if (added) added = add_tools(in);
  if (added && images) added = place_images(row, *images, kind_ == Kind::conversations, record);
  if (!added) return added.error();
  return record;
}

}  // namespace maestro
