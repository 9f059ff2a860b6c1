// SPDX-License-Identifier: Apache-2.0
// The conversion of a conversation to tokens:
//   system text \n USER: question \n ASSISTANT: answer end-of-turn USER: question \n ASSISTANT: ...
// without the spaces around the newlines and the end of turn; without a system text "USER: " begins. Each <image>
// becomes as many `image_token`s as its picture has patches. The model learns the answers and their ends of turns; all
// other tokens are inputs only.
//
// LT-1 (whole text): images and ends of turns cut the text as special tokens of the model's tokenizer do, and nothing
//       else does: the text between two of them, roles included, is encoded as a whole.
// LT-2 (prefix rule): of an answer those tokens are learned that the text up to its end has beyond the text before it.
//       A token across this border is learned, as CE-2 has it.
// LT-3 (whole turns): a conversation that is longer than the sequence keeps the questions with their answers that fit,
//       and the images of these. Only a first answer that does not fit is cut inside.
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
  std::vector<std::int32_t> targets;  ///< the token after, or `ignored_target` where that is not part of an answer
  std::int64_t learned = 0;           ///< targets that are not ignored
  std::size_t prompt = 0;             ///< tokens before the first learned one: the prompt for a model to answer
  std::size_t turns = 0;              ///< of the conversation, that were kept
  std::size_t pictures = 0;           ///< of the conversation, that were kept
  bool ended = true;                  ///< false: the only answer is cut before its end
};

/// Returns the id that ends an answer: the token that ends a text or, without such a token, the tokenizer's vocabulary
/// size. Tokens are in [0, chat_vocabulary), or `image_token`.
[[nodiscard]] std::int32_t end_of_turn(const Tokenizer& tokenizer);
/// Returns the number of tokens: the tokenizer's, and the end of a turn where that is none of them.
[[nodiscard]] inline std::int64_t chat_vocabulary(const Tokenizer& tokenizer) {
  return tokenizer.vocabulary() + (tokenizer.end_of_text() ? 0 : 1);
}

/// Returns the tokens of a conversation as parse_conversations delivers it; `patches` holds the number of patches of
/// each picture. The last token is a target only. With `begin`, the tokens that the tokenizer's file puts before a text
/// stand first, unless the text spells them. An error if `sequence` ends in a picture of the first question, or leaves
/// nothing to learn. Pure; any thread.
[[nodiscard]] Result<ChatTokens> chat_tokens(const Conversation& conversation, std::span<const std::int64_t> patches,
                                             const Tokenizer& tokenizer, std::int64_t sequence, bool begin);

/// Returns the text of tokens, for display; pictures and ends of turns have none.
[[nodiscard]] std::string chat_text(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer);

/// Returns the text of the tokens that a model wrote after a prompt, without the space that stands before an answer.
[[nodiscard]] std::string chat_answer(std::span<const std::int32_t> prompt, std::span<const std::int32_t> written,
                                      const Tokenizer& tokenizer);

/// Returns the first question for display: without placeholders and the white space around them.
[[nodiscard]] std::string chat_question(const Conversation& conversation);

}  // namespace maestro
