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

/// Placeholder in a question for the next of the sample's pictures.
inline constexpr std::string_view image_placeholder = "<image>";

struct Conversation {
  std::string id;
  std::vector<std::string> images;  ///< as named in the file
  std::vector<std::string> turns;   ///< question, answer, question, answer, ...
};

/// Receives the next entry's id (`#` and its number, from 1, if it has none) and the conversation, or the error in it.
using ConversationSink = std::function<void(const std::string& id, Result<Conversation> conversation)>;

/// Passes every entry to `sink` in order; an entry is held only during its call, so the text may be larger than memory.
/// A valid conversation has as many placeholders as pictures, all in questions, and questions and answers in turn, none
/// of the answers empty; the error of an invalid entry names the fault and its place in the entry. `name` is the
/// file's, for messages. Throws JobError when the text is not JSON or not a list.
void parse_conversations(std::istream& text, const std::string& name, const ConversationSink& sink);

/// Reads the same from a file; throws JobError if there is none, naming the part of its path that exists.
void read_conversations(const std::string& path, const ConversationSink& sink);

}  // namespace maestro
