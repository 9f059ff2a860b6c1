// SPDX-License-Identifier: Apache-2.0
// Conversations about pictures in the JSON format of LLaVA (Liu et al. 2023, "Visual Instruction Tuning"): a list of
//   {"id": "1", "image": "a.png", "conversations": [{"from": "human", "value": "<image>\nWhat is it?"},
//                                                   {"from": "gpt", "value": "A cat."}]}
// "image" (or "images") is a name, a list of names, or absent; "user" and "assistant" are also understood.
#pragma once

#include <functional>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// Stands in a question for the next of the sample's pictures.
inline constexpr std::string_view image_placeholder = "<image>";

struct Conversation {
  std::string id;
  std::vector<std::string> images;  ///< as named in the file
  std::vector<std::string> turns;   ///< question, answer, question, answer, ...
};

/// Takes the next entry's id (`#` and its number, from 1, where it has none) and the conversation, or why it is not
/// one.
using ConversationSink = std::function<void(const std::string& id, Result<Conversation> conversation)>;

/// Hands out every entry in order; an entry is held no longer than its turn, so the text may be larger than memory
/// would like. A conversation handed out has as many placeholders as pictures, all in questions, and questions and
/// answers in turn, none of the answers empty; the error of one that does not says what is wrong and where in the
/// entry. `name` is the file's, for messages. Throws JobError when the text is not JSON or not a list.
void parse_conversations(std::istream& text, const std::string& name, const ConversationSink& sink);

/// The same from a file; throws JobError when there is none, naming what does exist of its path.
void read_conversations(const std::string& path, const ConversationSink& sink);

}  // namespace maestro
