// SPDX-License-Identifier: Apache-2.0
// The tokens of a conversation in a model's chat template, and which of them a model learns.
//
// CE-1 (same tokens): the tokens are those of the template's text of the whole conversation, with the end that CE-3 may
//       append.
// CE-2 (prefix rule): of an answer those tokens are learned that the conversation up to the answer has beyond the
//       prompt for it (the template's text of the messages before, with the beginning of an answer). If that text does
//       not begin with the prompt, the answer begins after what both have in common. A token across this border is
//       learned.
// CE-3 (ends are learned): every learned answer has a token that ends it, as generation stops there. If the template
//       writes none, it is the token that begins the next turn, or the one that the user names; after the last
//       message it is appended.
// CE-4 (marked answers): a template with {% generation %} marks what is learned, and CE-2 does not count.
// CE-5 (nothing of earlier messages): no text of a message before an answer is learned with the answer.
// CE-6 (something of each answer): an answer is refused if the template's text has nothing of it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/chat/chat_template.hpp"
#include "runtime/core/result.hpp"
#include "runtime/dataset/record.hpp"
#include "runtime/dataset/row_notes.hpp"
#include "runtime/job/config.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

/// Tokens that are read together, without context from others.
struct Document {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> learned;  ///< 1: a target; empty: all are
};

struct ChatEncoderOptions {
  ChatContext context;  ///< without tools and variables, which rows have
  LearnedAnswers learned = LearnedAnswers::all;
  std::vector<std::int32_t> ends = {};   ///< tokens at which generation stops; empty: CE-3 is not checked
  std::optional<std::int32_t> end = {};  ///< the token that the user names as the end of an answer
  std::string source = {};               ///< the template's text, in which names of roles are searched
};

/// Immutable; `tokenizer` and `chat` outlive it. Thread-safe.
class ChatEncoder {
 public:
  ChatEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat, ChatEncoderOptions options);

  /// Returns the conversation as one document. If the template changes an earlier answer once another follows (as
  /// those that drop its thoughts), or an end has to be appended to it, then every learned answer is the end of a
  /// document of its own. Messages after the last learned answer are left out. `notes` receives what is worth a report.
  /// Errors: no answer to learn, an empty answer, messages that the template refuses, an answer without its end, and
  /// CE-5 and CE-6.
  [[nodiscard]] Result<std::vector<Document>> encode(const Record& record, RowNotes& notes) const;

 private:
  class Encoding;

  /// Returns the token that begins `next` after `messages`, if generation stops at it.
  [[nodiscard]] std::optional<std::int32_t> next_turn_token(std::span<const ChatMessage> messages,
                                                            const ChatMessage& next, const ChatContext& context) const;
  [[nodiscard]] bool ends_answer(std::int32_t token) const;

  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_;
  ChatEncoderOptions options_;
  std::optional<std::int32_t> next_user_turn_;  // the token that begins a user's turn, if generation stops at it
};

}  // namespace maestro
