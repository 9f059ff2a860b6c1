// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/record_format.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

using nlohmann::json;

/// Returns "role: content" of each message, or the text, or the error.
std::string read(const std::string& text, const std::string& column = "") {
  const json row = json::parse(text);
  const Result<RecordFormat> format = RecordFormat::of(row, column);
  if (!format) return "no format: " + format.error().message;
  const Result<Record> record = format->read(row, text);
  if (!record) return record.error().message;
  std::string made = std::string(format->name()) + "|" + record->text;
  for (const ChatMessage& message : record->messages)
    made += message.role + ": " + message.content + message.fields + "|";
  if (!record->tools.empty()) made += "tools " + record->tools;
  if (!record->variables.empty()) made += "variables " + record->variables;
  for (const std::size_t each : record->unlearned) made += "unlearned " + std::to_string(each);
  return made;
}

TEST(RecordFormat, columns_are_recognised) {
  EXPECT_EQ(read(R"({"text": "a"})"), "text|a");
  EXPECT_EQ(read(R"({"body": "a", "text": "b"})", "body"), "text|a");
  EXPECT_EQ(read(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
            "messages|user: a|assistant: b|");
  EXPECT_EQ(
      read(R"({"system": "s", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})"),
      "conversations|system: s|user: a|assistant: b|");
  EXPECT_EQ(read(R"({"prompt": "a", "completion": "b"})"), "completion|user: a|assistant: b|");
  EXPECT_EQ(
      read(R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]})"),
      "completion|user: a|assistant: b|");
  EXPECT_EQ(read(R"({"instruction": "a", "input": "", "output": "b"})"), "instruction|user: a|assistant: b|");
  EXPECT_EQ(read(R"({"system": "s", "instruction": "a", "input": "i", "output": "b"})"),
            "instruction|system: s|user: a\n\ni|assistant: b|");
}

TEST(RecordFormat, messages_count_before_other_columns_and_columns_without_effect_are_named) {
  const json row =
      json::parse(R"({"prompt": "p", "id": 7, "text": "t", "messages": [{"role": "user", "content": "a"}]})");
  const Result<RecordFormat> format = RecordFormat::of(row, "");
  ASSERT_TRUE(format);
  EXPECT_EQ(format->name(), "messages");
  EXPECT_EQ(format->unread(), (std::vector<std::string>{"id", "prompt", "text"}));
}

TEST(RecordFormat, content_may_be_a_list_of_texts) {
  EXPECT_EQ(
      read(
          R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})"),
      "messages|user: ab|");
}

TEST(RecordFormat, rows_of_no_format_are_refused_with_their_columns) {
  EXPECT_EQ(read(R"({"question": "a", "answer": "b"})"),
            "no format: the columns are answer, question; rows have messages, conversations, prompt and completion, "
            "instruction and output, or text (data.field, or --field, names another column of text)");
  EXPECT_EQ(read("[1]"), "no format: the row is [1]; it must be an object");
  EXPECT_EQ(read(R"({"text": "a"})", "body"), "no format: the column \"body\" is missing; the columns are text");
}

TEST(RecordFormat, what_has_another_meaning_is_refused_by_name) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages": []})", "\"messages\" is []; it must be a list of messages"},
      {R"({"messages": ["a"]})", R"(messages[0] is "a"; a message is {"role": TEXT, "content": TEXT})"},
      {R"({"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]})",
       "messages[0].weight is 0.5; it must be 1 (the answer is learned) or 0 (it is not)"},
      {R"({"messages": [{"role": "user", "content": "a", "weight": 1}]})",
       "messages[0].weight is 1, but the message is from \"user\"; only messages of the assistant are learned"},
      {R"({"conversations": [{"from": "function_call", "value": "add"}]})",
       R"(conversations[0].value is "add"; a function_call is the text of {"name": NAME, "arguments": {...}})"},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": 1})",
       "\"tools\" is 1; it must be a list, or the text of one"},
      {R"({"messages": [{"role": "user", "content": null}]})",
       "messages[0].content is null; it must be a text or a list of texts"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       R"(messages[0].content has the part {"type":"image"}; parts are {"type": "text", "text": TEXT}, and data.processor (--model) reads images)"},
      {R"({"messages": [{"role": "user", "content": 1}]})",
       "messages[0].content is 1; it must be a text or a list of texts"},
      {R"({"text": "a", "image": "a.png"})",
       "the column \"image\" is not read here; remove it, or name the model whose processor reads it as data.processor "
       "(--model)"},
      {R"({"text": 1})", "\"text\" is 1; it must be a text"}};
  for (const auto& [row, problem] : cases) EXPECT_EQ(read(row), problem);
  EXPECT_EQ(read(R"({"messages": [{"role": "user", "content": "a", "tool_calls": null}]})"), "messages|user: a|");
}

TEST(RecordFormat, fields_tools_and_weights_are_kept_in_the_order_of_their_keys) {
  EXPECT_EQ(read(R"({"messages": [{"role": "user", "name": "z", "content": "a"}, {"role": "assistant", "content": "b",
                 "thinking": "t", "annotations": [], "audio": null}]})"),
            R"(messages|user: a{"name":"z"}|assistant: b{"thinking":"t"}|)");
  EXPECT_EQ(read(R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"z": 1, "a": 2}]},
                 {"role": "tool", "content": {"z": 1, "a": 2}}]})"),
            R"(messages|assistant: {"content":null,"tool_calls":[{"z":1,"a":2}]}|tool: {"content":{"z":1,"a":2}}|)");
  EXPECT_EQ(read(R"({"messages": [{"role": "assistant", "content": "a", "weight": 0}],
                 "tools": "[{\"z\": 1, \"a\": 2}]", "chat_template_kwargs": {"z": true, "b": null}})"),
            R"(messages|assistant: a|tools [{"z":1,"a":2}]variables {"z":true,"b":null}unlearned 0)");
  EXPECT_EQ(read(R"({"messages": [{"role": "critic", "content": "a"}], "functions": [{"name": "f"}]})"),
            R"(messages|critic: a|tools [{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(read(R"({"conversations": [{"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {}}"},
                 {"from": "observation", "value": "4"}]})"),
            R"(conversations|assistant: {"content":null,"tool_calls":[{"type":"function","function":)"
            R"({"name":"f","arguments":{}}}]}|tool: 4|)");
}

TEST(RecordFormat, a_later_row_without_the_column_is_refused_with_its_columns) {
  const Result<RecordFormat> format = RecordFormat::of(json::parse(R"({"text": "a"})"), "");
  ASSERT_TRUE(format);
  EXPECT_EQ(format->read(json::parse(R"({"body": "a"})"), R"({"body": "a"})").error().message,
            "\"text\" is missing; the columns are body");
}

}  // namespace
}  // namespace maestro
