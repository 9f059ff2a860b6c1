// SPDX-License-Identifier: Apache-2.0
// The conversion of a conversation to tokens:
//   USER: question \n ASSISTANT: answer end-of-turn USER: question \n ASSISTANT: ...
// without the spaces around the newline and the end of turn. The text between pictures, roles included, is encoded as a
// whole, each answer by itself. Each <image> becomes as many `image_token`s as its picture has patches. The model
// learns the answers and their ends of turn; all other tokens are inputs only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/data/conversations.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

struct ChatTokens {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;  ///< the token after, or `ignored_target` where that is not part of an answer
  std::int64_t learned = 0;           ///< targets that are not ignored
  std::int64_t cut = 0;               ///< positions beyond `sequence` that were dropped
};

/// Returns the id that ends an answer: the token that ends a text or, without such a token, the tokenizer's vocabulary
/// size. Tokens are in [0, chat_vocabulary), or `image_token`.
[[nodiscard]] std::int32_t end_of_turn(const Tokenizer& tokenizer);
/// Returns the number of tokens: the tokenizer's, and the end of a turn where that is none of them.
[[nodiscard]] inline std::int64_t chat_vocabulary(const Tokenizer& tokenizer) {
  return tokenizer.vocabulary() + (tokenizer.end_of_text() ? 0 : 1);
}

/// Returns the tokens of a conversation as parse_conversations delivers it; `patches` holds the number of patches of
/// each picture. The last token is a target only. The result is cut to `sequence` positions at the end; an error if
/// that would cut a picture or leave nothing to learn. Pure; any thread.
[[nodiscard]] Result<ChatTokens> chat_tokens(const Conversation& conversation, std::span<const std::int64_t> patches,
                                             const Tokenizer& tokenizer, std::int64_t sequence);

/// Returns the tokens up to the first answer: the prompt for a model to write it.
[[nodiscard]] std::vector<std::int32_t> chat_prompt(const Conversation& conversation,
                                                    std::span<const std::int64_t> patches, const Tokenizer& tokenizer);

/// Returns the text of tokens, for display; pictures and ends of turns have none.
[[nodiscard]] std::string chat_text(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer);

/// Returns the first question for display: without placeholders and the white space around them.
[[nodiscard]] std::string chat_question(const Conversation& conversation);

}  // namespace maestro
