// SPDX-License-Identifier: Apache-2.0
// A row of training data by meaning, whatever file and columns it comes from.
#pragma once

#include <string>
#include <vector>

#include "runtime/chat/chat_template.hpp"

namespace maestro {

/// A text, or a conversation. Of a prompt and its completion both are filled: the texts of the two messages are the
/// columns as they are.
struct Record {
  std::string text;
  std::vector<ChatMessage> messages;  ///< empty: a text
  bool completion = false;            ///< `messages` are a prompt and its completion
  bool continues = false;             ///< the next record is more of the same text
  bool continued = false;             ///< this record is more of the text of the record before
};

}  // namespace maestro
