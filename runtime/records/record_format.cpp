// SPDX-License-Identifier: Apache-2.0
#include "runtime/records/record_format.hpp"

#include <algorithm>
#include <array>

#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

using nlohmann::json;

namespace {

Error wrong(std::string reason) {
  return {ErrorCode::invalid_argument, std::move(reason)};
}

std::string columns_of(const json& row) {
  std::string text;
  for (const auto& [key, value] : row.items()) text += (text.empty() ? "" : ", ") + printable(key);
  return text.empty() ? "none" : text;
}

bool is_absent(const json& value) {
  return value.is_null() || (value.is_array() && value.empty()) || (value.is_object() && value.empty());
}

/// A text, or the parts of a list that are all texts.
Result<std::string> content_of(const json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return wrong(where + " is " + shown(value) + "; it must be a text or a list of texts");
  std::string text;
  for (const json& part : value) {
    const bool is_text =
        part.is_object() && part.value("type", json()) == "text" && part.contains("text") && part["text"].is_string();
    if (!is_text) {
      return wrong(where + " has the part " + shown(part) +
                   R"(; parts are {"type": "text", "text": TEXT}, and kind = "llava" reads pictures)");
    }
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

/// The role as templates call it; nothing: unknown.
std::string_view role_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> roles{{{"human", "user"},
                                                                                {"user", "user"},
                                                                                {"gpt", "assistant"},
                                                                                {"assistant", "assistant"},
                                                                                {"model", "assistant"},
                                                                                {"system", "system"},
                                                                                {"developer", "developer"}}};
  const auto found = std::ranges::find(roles, name, [](const auto& each) { return each.first; });
  return found == roles.end() ? std::string_view() : found->second;
}

/// The names of the two keys of a message in a kind of list.
struct MessageKeys {
  const char* role;
  const char* content;
};

Status add_message(const json& value, const std::string& where, MessageKeys keys, std::vector<ChatMessage>& messages) {
  if (!value.is_object() || !value.contains(keys.role) || !value[keys.role].is_string()) {
    return wrong(where + " is " + shown(value) + "; a message is {\"" + keys.role + "\": TEXT, \"" + keys.content +
                 "\": TEXT}");
  }
  for (const auto& [key, other] : value.items()) {
    if (key == keys.role || key == keys.content || is_absent(other)) continue;
    return wrong(where + " has the key \"" + printable(key) + "\", which has no effect here; remove it");
  }
  const auto& name = value[keys.role].get_ref<const std::string&>();
  const std::string_view role = role_of(name);
  if (role.empty()) {
    return wrong(where + " is from \"" + printable(name) +
                 "\"; roles are system, developer, user (human) and assistant (gpt, model)");
  }
  Result<std::string> content = content_of(value.value(keys.content, json()), where + "." + keys.content);
  if (!content) return content.error();
  messages.push_back({std::string(role), *std::move(content)});
  return {};
}

Status add_messages(const json& row, const char* column, MessageKeys keys, std::vector<ChatMessage>& messages) {
  const json list = row.value(column, json());
  if (!list.is_array() || list.empty()) {
    return wrong("\"" + std::string(column) + "\" is " + shown(list) + "; it must be a list of messages");
  }
  for (std::size_t at = 0; at < list.size(); ++at) {
    const Status added = add_message(list[at], std::string(column) + "[" + std::to_string(at) + "]", keys, messages);
    if (!added) return added;
  }
  return {};
}

Result<std::string> text_at(const json& row, std::string_view column) {
  const auto found = row.find(column);
  if (found == row.end()) {
    return wrong("there is no \"" + std::string(column) + "\"; the columns are " + columns_of(row));
  }
  if (!found->is_string()) return wrong("\"" + std::string(column) + "\" is " + shown(*found) + "; it must be a text");
  return found->get<std::string>();
}

/// Adds the text of an optional column as a message, or behind the last of the same role.
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

/// A column of a prompt or a completion: a text of `role`, or messages.
Status add_side(const json& row, const char* column, const char* role, std::vector<ChatMessage>& messages) {
  if (row.contains(column) && row[column].is_array()) return add_messages(row, column, {"role", "content"}, messages);
  Result<std::string> text = text_at(row, column);
  if (!text) return text.error();
  messages.push_back({role, *std::move(text)});
  return {};
}

Status add_completion(const json& row, Record& record) {
  record.completion = row.value("prompt", json()).is_string() && row.value("completion", json()).is_string();
  if (const Status added = add_side(row, "prompt", "user", record.messages); !added) return added;
  return add_side(row, "completion", "assistant", record.messages);
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

/// Columns that mean more than is read, in any format.
Status refuse_columns(const json& row) {
  for (const char* column : {"tools", "functions", "image", "images", "documents"}) {
    if (!row.contains(column) || is_absent(row[column])) continue;
    return wrong("the column \"" + std::string(column) + "\" has no effect here; remove it" +
                 (column[0] == 'i' ? ", or use kind = \"llava\"" : ""));
  }
  return {};
}

}  // namespace

std::string_view RecordFormat::name() const {
  constexpr std::array<std::string_view, 5> names{"messages", "conversations", "completion", "instruction", "text"};
  return names[static_cast<std::size_t>(kind_)];
}

std::vector<std::string_view> RecordFormat::columns() const {
  switch (kind_) {
    case Kind::messages:
      return {"messages"};
    case Kind::conversations:
      return {"conversations", "system"};
    case Kind::completion:
      return {"prompt", "completion"};
    case Kind::instruction:
      return {"instruction", "output", "input", "system"};
    case Kind::text:
      break;
  }
  return {text_column_};
}

Result<RecordFormat> RecordFormat::of(const json& row, const std::string& text_column) {
  if (!row.is_object()) return wrong("the row is " + shown(row) + "; it must be an object");
  const auto has = [&](const char* column) { return row.contains(column); };
  std::optional<RecordFormat> format;
  if (!text_column.empty()) {
    if (!row.contains(text_column)) {
      return wrong("there is no column \"" + printable(text_column) + "\"; the columns are " + columns_of(row));
    }
    format = RecordFormat(Kind::text, text_column);
  } else if (has("messages")) {
    format = RecordFormat(Kind::messages, "");
  } else if (has("conversations")) {
    format = RecordFormat(Kind::conversations, "");
  } else if (has("prompt") && has("completion")) {
    format = RecordFormat(Kind::completion, "");
  } else if (has("instruction") && has("output")) {
    format = RecordFormat(Kind::instruction, "");
  } else if (has("text")) {
    format = RecordFormat(Kind::text, "text");
  }
  if (!format) {
    return wrong("the columns are " + columns_of(row) +
                 "; rows have messages, conversations, prompt and completion, instruction and output, or text "
                 "(data.field, or --field, names another column of text)");
  }
  const std::vector<std::string_view> read = format->columns();
  for (const auto& [key, value] : row.items()) {
    if (std::ranges::find(read, key) == read.end()) format->unread_.push_back(key);
  }
  return *std::move(format);
}

Result<RecordFormat> format_of_row(const Row& row, const std::string& text_column) {
  const Result<json> value = parse_json(row.content, row.where);
  if (!value) return value.error();
  Result<RecordFormat> format = RecordFormat::of(*value, text_column);
  if (!format) return Error{format.error().code, printable(row.where) + ": " + format.error().message};
  return format;
}

Result<Record> RecordFormat::read(const json& row) const {
  if (!row.is_object()) return wrong("the row is " + shown(row) + "; it must be an object");
  if (const Status allowed = refuse_columns(row); !allowed) return allowed.error();
  Record record;
  Status added;
  switch (kind_) {
    case Kind::messages:
      added = add_messages(row, "messages", {"role", "content"}, record.messages);
      break;
    case Kind::conversations:
      added = add_optional(row, "system", "system", record.messages);
      if (added) added = add_messages(row, "conversations", {"from", "value"}, record.messages);
      break;
    case Kind::completion:
      added = add_completion(row, record);
      break;
    case Kind::instruction:
      added = add_instruction(row, record.messages);
      break;
    case Kind::text: {
      Result<std::string> text = text_at(row, text_column_);
      if (!text) return text.error();
      record.text = *std::move(text);
      break;
    }
  }
  if (!added) return added.error();
  return record;
}

}  // namespace maestro
