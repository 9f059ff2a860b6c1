// SPDX-License-Identifier: Apache-2.0
// Encodes a conversation by a model's chat template, and marks the tokens that a model learns.
//
// CE-1 (same tokens): the tokens equal the tokens of the template's text for the complete conversation, except for an
//       end that CE-3 appends.
// CE-2 (prefix rule): the learned tokens of an answer are the tokens that follow its prompt in the conversation up to
//       the answer. The prompt is the template's text for the messages before, with the beginning of an answer. If the
//       conversation does not begin with the prompt, the answer begins after their common prefix. A token across this
//       border is learned.
// CE-3 (ends are learned): every learned answer has a token that ends it, as generation stops there. If the template
//       writes none, the token that begins the next turn, or the token that the user names, is the end; after the last
//       message it is appended.
// CE-4 (marked answers): a template with {% generation %} marks the learned parts, and CE-2 does not apply.
// CE-5 (nothing of earlier messages): no text from a message before an answer is learned with the answer.
// CE-6 (something of each answer): an answer is refused if the template's text contains nothing of it.
// CE-7 (images): the texts of images replace their placeholders before the text is encoded, the same in every text of
//       the conversation, and the tokens begin as the tokenizer's file begins a text. Tokens of images are not learned.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/chat/chat_template.hpp"
#include "runtime/core/result.hpp"
#include "runtime/dataset/image_expander.hpp"
#include "runtime/dataset/record.hpp"
#include "runtime/dataset/row_notes.hpp"
#include "runtime/job/config.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

/// Tokens that are read together, without context from other documents.
struct Document {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> learned;  ///< 1: a target; empty: all tokens are targets
  std::size_t images = 0;             ///< number of the record's images, from the first, that the document has
};

struct ChatEncoderOptions {
  ChatContext context;  ///< context without tools and variables, which rows have
  LearnedAnswers learned = LearnedAnswers::all;
  std::vector<std::int32_t> ends = {};    ///< tokens at which generation stops; empty: CE-3 is not checked
  std::optional<std::int32_t> end = {};   ///< the end of an answer that the user names
  std::string source = {};                ///< the template's text, for the search of role names
  const ImageExpander* images = nullptr;  ///< null: without images
  bool begin_of_text = true;              ///< CE-7: the tokens begin as the tokenizer's file begins a text
};

/// Immutable; `tokenizer` and `chat` outlive it. Thread-safe.
class ChatEncoder {
 public:
  ChatEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat, ChatEncoderOptions options);

  /// Returns the conversation as one document. With LearnedAnswers::none: the template's text up to the last message of
  /// a user, with the beginning of an answer (CE-2), and a further token, so that each token of the prompt has a
  /// position in a sample; nothing is learned. Otherwise, if the template changes an earlier answer when another
  /// follows (some templates drop its thoughts), or an end must be appended to it, every learned answer ends a separate
  /// document. Messages after the last learned answer are left out. `notes` receives findings to report. Errors: no
  /// answer to learn, an empty answer, messages that the template refuses, an answer without its end, CE-5 and CE-6,
  /// and another number of placeholders in the template's text than of images. `images`: a text for each image in the
  /// record.
  [[nodiscard]] Result<std::vector<Document>> encode(const Record& record, RowNotes& notes,
                                                     std::span<const ExpandedImage> images = {}) const;

 private:
  class Encoding;

  [[nodiscard]] Result<std::vector<Document>> encode_prompt(const Record& record) const;

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
