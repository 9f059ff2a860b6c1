// SPDX-License-Identifier: Apache-2.0
// The conversion of a conversation to tokens:
//   system text \n USER: question \n ASSISTANT: answer end-of-turn USER: question \n ASSISTANT: ...
// without the spaces around the newlines and the end of turn; without a system text, "USER: " comes first. Each <image>
// becomes as many `image_token`s as its image has patches. The model learns the answers and their ends of turns; all
// other tokens are inputs only.
//
// LT-1 (whole text): only images and ends of turns divide the text, as special tokens of the model's tokenizer do. The
//       text between two of them, including the roles, is encoded in a single call.
// LT-2 (prefix rule): an answer's learned tokens are the tokens of the text up to its end, without their common prefix
//       with the tokens of the text before the answer. A token across this border is learned, as in CE-2.
// LT-3 (whole turns): a conversation that is longer than the sequence keeps the questions whose answers fit, with their
//       images. Only a first answer that does not fit is truncated.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/data/text/conversations.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

struct ChatTokens {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;  ///< next tokens; `ignored_target` if the next token is not learned
  std::int64_t learned = 0;           ///< targets that are not ignored
  std::size_t prompt = 0;             ///< tokens before the first learned token: a prompt for the answer
  std::size_t turns = 0;              ///< turns of the conversation that were kept
  std::size_t pictures = 0;           ///< images of the conversation that were kept
  bool ended = true;                  ///< false: the only answer is truncated
};

/// Returns the id that ends an answer: the token that ends a text or, without such a token, the tokenizer's vocabulary
/// size. Tokens are in [0, chat_vocabulary), or `image_token`.
[[nodiscard]] std::int32_t end_of_turn(const Tokenizer& tokenizer);
/// Returns the number of tokens: the tokenizer's vocabulary, plus 1 if it does not contain the end of a turn.
[[nodiscard]] inline std::int64_t chat_vocabulary(const Tokenizer& tokenizer) {
  return tokenizer.vocabulary() + (tokenizer.end_of_text() ? 0 : 1);
}

/// Returns the tokens of a conversation from parse_conversations; `patches` has the number of patches of each image.
/// The last token is a target only. With `begin`, the tokens that the tokenizer's file puts before a text come first,
/// unless the text already starts with them. Returns an error if the images of the first question reach beyond
/// `sequence`, or if no learned token fits. Pure; any thread.
[[nodiscard]] Result<ChatTokens> chat_tokens(const Conversation& conversation, std::span<const std::int64_t> patches,
                                             const Tokenizer& tokenizer, std::int64_t sequence, bool begin);

/// Returns the text of tokens, for display, without images and ends of turns.
[[nodiscard]] std::string chat_text(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer);

/// Returns the text of the tokens that a model wrote after a prompt, without the space before an answer.
[[nodiscard]] std::string chat_answer(std::span<const std::int32_t> prompt, std::span<const std::int32_t> written,
                                      const Tokenizer& tokenizer);

/// Returns the first question for display: without placeholders and the white space around them.
[[nodiscard]] std::string chat_question(const Conversation& conversation);

}  // namespace maestro
