// SPDX-License-Identifier: Apache-2.0
// A row of training data by meaning, whatever file and columns it comes from.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/chat/chat_template.hpp"

namespace maestro {

/// A text, or a conversation. A prompt and its completion fill both: the texts of the two messages are the columns as
/// they are.
struct Record {
  std::string text;
  std::vector<ChatMessage> messages;   ///< empty: a text
  std::string tools;                   ///< the tools that a conversation offers: text of a JSON list; empty: none
  std::string variables;               ///< of the template: text of a JSON object; empty: none
  std::vector<std::size_t> unlearned;  ///< messages with weight 0
  bool completion = false;             ///< `messages` are a prompt and its completion
  bool continues = false;              ///< the next record is more of the same text
  bool continued = false;              ///< this record is more of the text of the record before
};

}  // namespace maestro
