// SPDX-License-Identifier: Apache-2.0
// The tokens of a conversation in a model's chat template, and which of them a model learns.
//
// CE-1 (same tokens): the tokens are those of the template's text of the whole conversation.
// CE-2 (prefix rule): of an answer those tokens are learned that the conversation up to the answer has beyond the
//       prompt for it (the template's text of the messages before, with the beginning of an answer). A token across
//       this border is learned.
// CE-3 (ends are learned): every learned answer has a token that ends it, as generation stops there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/chat/chat_template.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/config.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

/// Tokens that are read together, without context from others.
struct Document {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> learned;  ///< 1: a target; empty: all are
};

struct ChatEncoderOptions {
  ChatContext context;
  LearnedAnswers learned = LearnedAnswers::all;
  std::vector<std::int32_t> ends;  ///< tokens at which generation stops; empty: CE-3 is not checked
};

/// Immutable; `tokenizer` and `chat` outlive it. Thread-safe.
class ChatEncoder {
 public:
  ChatEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat, ChatEncoderOptions options);

  /// Returns the conversation as one document. Where the template changes an earlier answer once another follows (as
  /// those that drop its thoughts), the prefix rule does not hold: then every learned answer is the end of a document
  /// of its own. Messages behind the last answer are left out. Errors: no answer, an empty answer, messages that the
  /// template refuses, a prompt that is no beginning of the conversation with the answer, an answer without its end.
  [[nodiscard]] Result<std::vector<Document>> encode(std::span<const ChatMessage> messages) const;

 private:
  struct Answer {
    std::size_t message;
    std::string prompt;  // text
    std::string until;   // text with the answer
    bool is_last;        // of its document
  };
  [[nodiscard]] Result<std::vector<Answer>> answers_of(std::span<const ChatMessage> messages) const;
  [[nodiscard]] Status learn(const Answer& answer, Document& document) const;

  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_;
  ChatEncoderOptions options_;
};

}  // namespace maestro
