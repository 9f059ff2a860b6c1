// SPDX-License-Identifier: Apache-2.0
// A row of training data by its meaning, independent of file and columns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/chat/chat_template.hpp"
#include "runtime/dataset/row_image.hpp"
#include "runtime/dataset/row_notes.hpp"

namespace maestro {

/// A text, or a conversation. A prompt and its completion fill both: the two messages contain the columns unchanged.
struct Record {
  std::string text;
  std::vector<ChatMessage> messages;   ///< messages of a conversation; empty: a text
  std::string tools;                   ///< tools that a conversation offers, as a JSON list; empty: none
  std::string variables;               ///< template variables, as a JSON object; empty: none
  std::vector<std::size_t> unlearned;  ///< messages with weight 0
  /// Images in the order of the messages. Contents are then lists of parts, {"type": "image"} and
  /// {"type": "text", "text": TEXT}; ChatMessage::content is their text.
  std::vector<RowImage> images;
  std::vector<std::size_t> image_messages;  ///< message of each image
  std::vector<RowNote> repairs;             ///< repairs of the row
  bool completion = false;                  ///< `messages` are a prompt and its completion
  bool continues = false;                   ///< the next record continues the same text
  bool continued = false;                   ///< this record continues the previous record's text
};

}  // namespace maestro
