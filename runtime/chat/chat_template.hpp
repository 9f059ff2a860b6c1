// SPDX-License-Identifier: Apache-2.0
// Renders a conversation by a model's chat template: an interpreter of Jinja, set up as in transformers. An unsupported
// construct is refused by name, at the latest when it is reached.
//
// CJ-1 (same text): a returned text equals the text of jinja2 in transformers' apply_chat_template for the same
//       messages, tools, variables and date.
// CJ-2 (bounded): nesting, numbers, texts and the work of a rendering are bounded, so that no template exhausts stack,
//       memory or time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

struct ChatMessage {
  std::string role;
  std::string content;
  /// Other keys, as the text of a JSON object; empty: none. They reach the template unchanged and in order. A key
  /// "content" replaces `content` (null, or a list of parts).
  std::string fields = {};
};

/// Inputs of a template other than the messages.
struct ChatContext {
  std::string bos_token = {};  ///< empty: undefined
  std::string eos_token = {};
  std::string tools = {};      ///< text of a JSON list; empty: none
  std::string variables = {};  ///< text of a JSON object: further variables (transformers' chat_template_kwargs)
  /// Time for strftime_now; absent: strftime_now is not defined, so that a text does not depend on the day.
  std::optional<std::chrono::sys_seconds> date = {};
};

/// A part of a text.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

struct RenderedChat {
  std::string text;
  /// Output of {% generation %} blocks (transformers' assistant masks): in order, with neighbours joined.
  std::vector<ByteRange> generated;
};

/// Text after the last message: the beginning of the assistant's answer (transformers' add_generation_prompt), or
/// nothing.
enum class ChatEnd : std::uint8_t { prompt, none };

/// Immutable after construction: thread-safe.
class ChatTemplate {
 public:
  /// Parses `source`. Throws JobError, with `file` and the line in the template.
  ChatTemplate(std::string_view source, std::string file);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  /// Returns the text of the messages. Throws JobError, also with file and line, for an unsupported construct, for
  /// messages that the template refuses, and for fields, tools or variables that are not JSON.
  [[nodiscard]] RenderedChat render(std::span<const ChatMessage> messages, const ChatContext& context,
                                    ChatEnd end = ChatEnd::prompt) const;
  /// Returns the same without the ranges.
  [[nodiscard]] std::string render_text(std::span<const ChatMessage> messages, const ChatContext& context,
                                        ChatEnd end = ChatEnd::prompt) const;
  /// Returns whether the template marks answers by {% generation %}.
  [[nodiscard]] bool uses_generation() const;
  /// Returns whether the template names strftime_now.
  [[nodiscard]] bool uses_date() const;

 private:
  struct Tree;
  std::string file_;
  std::unique_ptr<const Tree> tree_;
};

}  // namespace maestro
