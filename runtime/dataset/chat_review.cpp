// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/chat_review.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/core/printable.hpp"
#include "runtime/dataset/chat_encoder.hpp"
#include "runtime/dataset/kept_text.hpp"

namespace maestro {

using nlohmann::ordered_json;

namespace {

constexpr std::size_t sure_characters = 4;  // longer parts of an answer are not in a text by chance
constexpr int most_trials = 4;              // trials of a key per batch of rows

/// Role names that have a meaning for many templates.
constexpr std::array<std::string_view, 8> known_roles{"system", "developer", "user",    "assistant",
                                                      "tool",   "function",  "ipython", "observation"};

ordered_json fields_of(const ChatMessage& message) {
  return message.fields.empty() ? ordered_json::object() : ordered_json::parse(message.fields);
}

/// Returns whether a message has text in addition to its keys for tools and thoughts.
bool has_content(const ChatMessage& message) {
  const ordered_json fields = fields_of(message);
  const auto content = fields.find("content");
  return !trimmed(message.content).empty() || (content != fields.end() && !content->empty());
}

/// Adds all texts and numbers in a value.
void add_leaves(const ordered_json& value, std::vector<std::string>& texts) {
  if (value.is_structured()) {
    for (const ordered_json& each : value) add_leaves(each, texts);
  } else if (value.is_string()) {
    texts.emplace_back(trimmed(value.get_ref<const std::string&>()));
  } else if (value.is_number()) {
    texts.push_back(value.dump());
  }
}

void add_call(const ordered_json& call, std::vector<std::string>& texts) {
  if (!call.is_object()) return add_leaves(call, texts);
  const ordered_json function = call.value("function", call);
  if (!function.is_object()) return add_leaves(function, texts);
  add_leaves(function.value("name", ordered_json()), texts);
  const ordered_json arguments = function.value("arguments", ordered_json());
  const ordered_json parsed =
      arguments.is_string() ? ordered_json::parse(arguments.get_ref<const std::string&>(), nullptr, false) : arguments;
  add_leaves(parsed.is_structured() ? parsed : arguments, texts);
}

/// Returns the messages without a key.
std::vector<ChatMessage> without_key(std::span<const ChatMessage> messages, const std::string& key) {
  std::vector<ChatMessage> made(messages.begin(), messages.end());
  for (ChatMessage& message : made) {
    ordered_json fields = fields_of(message);
    if (fields.erase(key) > 0) message.fields = fields.empty() ? "" : fields.dump();
  }
  return made;
}

}  // namespace

std::string message_place(std::size_t message) {
  return "messages[" + std::to_string(message) + "]";
}

std::vector<std::string> texts_of_answer(const ChatMessage& message) {
  std::vector<std::string> texts{std::string(trimmed(message.content))};
  const ordered_json fields = fields_of(message);
  for (const char* key : {"content", "reasoning_content", "reasoning", "thinking"}) {
    const bool of_parts = key == std::string_view("content") && !message.content.empty();  // it is the parts' text
    if (fields.contains(key) && !of_parts) add_leaves(fields[key], texts);
  }
  for (const char* key : {"tool_calls", "function_call"}) {
    if (!fields.contains(key)) continue;
    if (fields[key].is_array()) {
      for (const ordered_json& call : fields[key]) add_call(call, texts);
    } else {
      add_call(fields[key], texts);
    }
  }
  std::erase(texts, "");
  return texts;
}

Status ChatReview::measure(std::vector<LearnedAnswer>& answers, RowNotes& notes) const {
  std::vector<LearnedAnswer> kept;
  Status lost;
  for (LearnedAnswer& answer : answers) {
    const ChatMessage& message = record_.messages[answer.message];
    const std::string_view own = std::string_view(answer.until.text).substr(answer.begin);
    for (const std::string& text : texts_of_answer(message)) {
      const std::size_t characters = count_characters(text);
      answer.characters += characters;
      answer.missing += characters - kept_characters(text, own);
    }
    notes.add_text(true, answer.characters, answer.missing, message_place(answer.message));
    const bool sure = answer.characters - answer.missing >= sure_characters;
    if (const Status left = sure ? Status() : check_kept(answer); !left) {
      if (has_content(message)) return left;
      lost = left;
      notes.add(RowNote::passed_over, "", message_place(answer.message));
    } else {
      kept.push_back(std::move(answer));
    }
  }
  if (kept.empty()) return lost;
  answers = std::move(kept);
  return {};
}

Status ChatReview::check_kept(const LearnedAnswer& answer) const {
  std::vector<ChatMessage> emptied(record_.messages.begin(),
                                   record_.messages.begin() + static_cast<std::ptrdiff_t>(answer.message) + 1);
  emptied.back() = {"assistant", ""};
  bool lost = answer.missing == answer.characters;
  try {
    lost = chat_.render_text(emptied, context_, ChatEnd::none) == answer.until.text;
  } catch (const JobError&) {  // the template refuses an empty answer
  }
  if (!lost) return {};
  const ChatMessage& message = record_.messages[answer.message];
  const std::string_view text = answer.until.text;
  return Error{ErrorCode::invalid_argument,
               "nothing of " + message_place(answer.message) + " is in the template's text, which ends with \"" +
                   printable(text.substr(text.size() - std::min<std::size_t>(text.size(), 32))) +
                   "\": " + reason_of_loss(message)};
}

std::string ChatReview::reason_of_loss(const ChatMessage& message) const {
  if (message.content.find("</think>") != std::string::npos)
    return "it keeps only text after </think>, and there is none";
  std::string keys = message.content.empty() ? "" : "\"content\"";
  const ordered_json fields = fields_of(message);
  for (const auto& [key, value] : fields.items()) {
    if (key != "content") keys += (keys.empty() ? "\"" : ", \"") + printable(key) + "\"";
  }
  return "it does not use the message's " + keys;
}

void ChatReview::report(std::span<const LearnedAnswer> answers, const ChatEncoderOptions& options,
                        RowNotes& notes) const {
  const LearnedAnswer& last = answers.back();
  const auto messages = std::span(record_.messages).first(last.message + 1);
  report_texts(messages, last.until.text, notes);
  report_keys(messages, last, notes);
  report_variables(messages, last, notes);
  for (const std::size_t at : record_.unlearned) notes.add(RowNote::unlearned, "", message_place(at));
  for (std::size_t at = 0; at < messages.size(); ++at) {
    const std::string& role = messages[at].role;
    const bool answer = role == "assistant";
    const bool named = std::ranges::find(known_roles, role) != known_roles.end() ||
                       options.source.find("'" + role + "'") != std::string::npos ||
                       options.source.find("\"" + role + "\"") != std::string::npos;
    if (!named) notes.add(RowNote::unknown_role, role, message_place(at));
    tokenizer_.find_special(messages[at].content, [&](std::int32_t token) {
      if (answer && std::ranges::find(options.ends, token) == options.ends.end()) return;  // such as <think>
      notes.add(RowNote::spelled_token, tokenizer_.piece(token), message_place(at));
    });
  }
}

void ChatReview::report_texts(std::span<const ChatMessage> messages, std::string_view text, RowNotes& notes) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < messages.size(); ++at) {
    const std::string_view content = trimmed(messages[at].content);
    if (messages[at].role == "assistant" || content.empty()) continue;
    const std::size_t characters = count_characters(content);
    const std::size_t found = text.find(content, done);
    if (found != std::string_view::npos) done = found + content.size();
    const std::size_t kept = found != std::string_view::npos ? characters : kept_characters(content, text);
    notes.add_text(false, characters, characters - kept, message_place(at));
  }
}

void ChatReview::report_keys(std::span<const ChatMessage> messages, const LearnedAnswer& last, RowNotes& notes) const {
  std::set<std::string> done;
  for (std::size_t at = 0; at < messages.size(); ++at) {
    const ordered_json fields = fields_of(messages[at]);
    for (const auto& [key, value] : fields.items()) {
      if (key == "content") continue;
      KeyUse& use = notes.use_key(key, message_place(at));
      if (use.read || use.tried == most_trials || !done.insert(key).second) continue;
      ++use.tried;
      try {
        use.read = chat_.render_text(without_key(messages, key), context_, ChatEnd::none) != last.until.text;
      } catch (const JobError&) {
        use.read = true;
      }
    }
  }
}

void ChatReview::report_variables(std::span<const ChatMessage> messages, const LearnedAnswer& last,
                                  RowNotes& notes) const {
  const auto try_without = [&](const std::string& key, const ChatContext& other) {
    KeyUse& use = notes.use_key(key, "the row");
    if (use.read || use.tried == most_trials) return;
    ++use.tried;
    try {
      use.read = chat_.render_text(messages, other, ChatEnd::none) != last.until.text ||
                 chat_.render_text(messages.first(last.message), other, ChatEnd::prompt) != last.prompt;
    } catch (const JobError&) {
      use.read = true;
    }
  };
  ChatContext other = context_;
  if (!record_.tools.empty()) {
    other.tools.clear();
    try_without("tools", other);
    other.tools = context_.tools;
  }
  if (record_.variables.empty()) return;
  const ordered_json variables = ordered_json::parse(record_.variables);
  for (const auto& [key, value] : variables.items()) {
    ordered_json others = variables;
    others.erase(key);
    other.variables = others.dump();
    try_without("chat_template_kwargs." + key, other);
  }
}

}  // namespace maestro
