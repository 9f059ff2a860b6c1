// SPDX-License-Identifier: Apache-2.0
#include "runtime/chat/chat_template.hpp"

#include "runtime/chat/template_renderer.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/utf8.hpp"

namespace maestro {

using Value = TemplateValue;

struct ChatTemplate::Tree : TemplateTree {};

namespace {

Value text_value(const std::string& text, const std::string& name) {
  if (valid_utf8_prefix(text) != text.size()) throw JobError(name + " is not UTF-8");
  return text;
}

/// Returns the value of a JSON text of this kind; `kind` names it.
Value parsed(const std::string& text, const std::string& name, Value::Kind wanted, const char* kind) {
  Value value = parse_template_json(text, name);
  if (!value.is(wanted)) throw JobError(name + " is " + kind_of(value) + "; it must be " + kind);
  return value;
}

Value message_of(const ChatMessage& message, std::size_t index) {
  const std::string name = "messages[" + std::to_string(index) + "]";
  TemplateMapping made;
  made.set("role", text_value(message.role, name + ".role"));
  made.set("content", text_value(message.content, name + ".content"));
  if (!message.fields.empty()) {
    const Value fields = parsed(message.fields, name, Value::Kind::mapping, "a mapping");
    for (const auto& [key, value] : fields.mapping().pairs()) made.set(key, value);
  }
  return made;
}

TemplateVariables variables_of(std::span<const ChatMessage> messages, const ChatContext& context, ChatEnd end) {
  TemplateVariables made;
  if (!context.bos_token.empty()) made["bos_token"] = text_value(context.bos_token, "bos_token");
  if (!context.eos_token.empty()) made["eos_token"] = text_value(context.eos_token, "eos_token");
  if (!context.variables.empty()) {
    const Value more = parsed(context.variables, "variables", Value::Kind::mapping, "a mapping");
    for (const auto& [key, value] : more.mapping().pairs()) made[key.text()] = value;
  }
  TemplateValues list;
  for (std::size_t i = 0; i < messages.size(); ++i) list.push_back(message_of(messages[i], i));
  const std::pair<const char*, Value> own[] = {
      {"messages", Value::list(std::move(list))},
      {"add_generation_prompt", end == ChatEnd::prompt},
      {"tools", context.tools.empty() ? Value() : parsed(context.tools, "tools", Value::Kind::list, "a list")}};
  for (const auto& [name, value] : own) {
    if (!made.emplace(name, value).second) throw JobError(std::string("variables: ") + name + " is not a variable");
  }
  made.emplace("documents", Value());
  return made;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::string file)
    : file_(std::move(file)), tree_(std::make_unique<Tree>(Tree{parse_template(source, file_)})) {}

ChatTemplate::~ChatTemplate() = default;

bool ChatTemplate::uses_generation() const {
  return tree_->uses_generation;
}

bool ChatTemplate::uses_date() const {
  return tree_->uses_date;
}

RenderedChat ChatTemplate::render(std::span<const ChatMessage> messages, const ChatContext& context,
                                  ChatEnd end) const {
  return TemplateRenderer(file_, variables_of(messages, context, end), context.date).render(*tree_, true);
}

std::string ChatTemplate::render_text(std::span<const ChatMessage> messages, const ChatContext& context,
                                      ChatEnd end) const {
  return TemplateRenderer(file_, variables_of(messages, context, end), context.date).render(*tree_, false).text;
}

}  // namespace maestro
