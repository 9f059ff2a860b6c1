// SPDX-License-Identifier: Apache-2.0
// The text that a model's chat template makes of a conversation: an interpreter of the part of Jinja that the templates
// of common models use. Every other construct is refused by its name, at the latest when it is reached.
//
// CJ-1 (same text): a text that is returned equals that of transformers' apply_chat_template without tools and
//       documents. strftime_now is not defined: a template takes its own date.
// CJ-2 (bounded): nesting, numbers, texts and the work of a rendering are bounded, so that no template exhausts stack,
//       memory or patience.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace maestro {

struct ChatMessage {
  std::string role;
  std::string content;
};

/// What a template sees beside the messages.
struct ChatSpecialTokens {
  std::string bos_token;  ///< empty: undefined
  std::string eos_token;
};

/// What follows the last message: the beginning of the assistant's answer (transformers' add_generation_prompt), or
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

  /// Returns the text of the messages. Throws JobError, likewise: for a construct that is not supported, and for
  /// messages that the template refuses.
  [[nodiscard]] std::string render(std::span<const ChatMessage> messages, const ChatSpecialTokens& tokens,
                                   ChatEnd end = ChatEnd::prompt) const;

 private:
  struct Tree;
  std::string file_;
  std::unique_ptr<const Tree> tree_;
};

}  // namespace maestro
