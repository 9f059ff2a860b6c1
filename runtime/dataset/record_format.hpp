// SPDX-License-Identifier: Apache-2.0
// The columns of training data, recognised from the first row of a file:
//   messages       {"messages": [{"role": "user", "content": "..."}, ...]}
//   conversations  {"system": "...", "conversations": [{"from": "human", "value": "..."}, ...]}   (system: optional)
//   completion     {"prompt": "...", "completion": "..."}; both may be lists of messages
//   instruction    {"system": "...", "instruction": "...", "input": "...", "output": "..."}   (system, input: optional)
//   dialogues      {"images": [...], "texts": [{"user": "...", "assistant": "..."}, ...]}, with images only
//   text           {"text": "..."}
// The first format whose columns exist is used. A message's content is a text, or a list of
// {"type": "text", "text": "..."}. Other keys of a message (reasoning_content, tool_calls, name) reach the template
// unchanged, unless they are null or empty; "weight": 0 keeps an answer from being learned. The columns tools
// (functions) and chat_template_kwargs of a conversation reach it too, and may be JSON in a text. Images, which
// may be in the columns image and images and in parts of messages (record_images.hpp), are an error unless the caller
// reads them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/dataset/record.hpp"
#include "runtime/dataset/record_images.hpp"
#include "runtime/dataset/row_files.hpp"

namespace maestro {

/// Immutable: thread-safe.
class RecordFormat {
 public:
  /// Returns the format of a row. `text_column`, if not empty, is the column of a text and decides the format. The
  /// error lists the row's columns and the formats.
  [[nodiscard]] static Result<RecordFormat> of(const nlohmann::json& row, const std::string& text_column,
                                               ImagesOfRows images = ImagesOfRows::refused);

  [[nodiscard]] std::string_view name() const;
  [[nodiscard]] bool is_chat() const { return kind_ != Kind::text; }
  [[nodiscard]] bool is_completion() const { return kind_ == Kind::completion; }
  /// Returns columns in the first row that the format does not read.
  [[nodiscard]] const std::vector<std::string>& unread() const { return unread_; }
  /// Reads a row; `text` is its JSON, `media` what its JSON does not contain. The error names the faulty column or
  /// message.
  [[nodiscard]] Result<Record> read(const nlohmann::json& row, std::string_view text, RowMedia media = {}) const;

 private:
  enum class Kind : std::uint8_t { messages, conversations, completion, instruction, text, dialogues };
  RecordFormat(Kind kind, std::string text_column, ImagesOfRows images)
      : kind_(kind), images_(images), text_column_(std::move(text_column)) {}
  [[nodiscard]] static std::optional<Kind> kind_of(const nlohmann::json& row, bool images);
  [[nodiscard]] std::vector<std::string_view> columns() const;

  [[nodiscard]] bool has_images() const { return images_ != ImagesOfRows::refused; }

  Kind kind_;
  ImagesOfRows images_;
  std::string text_column_;
  std::vector<std::string> unread_;
};

/// Returns the format of a file's row, as RecordFormat::of. The error names the row's place.
[[nodiscard]] Result<RecordFormat> format_of_row(const Row& row, const std::string& text_column,
                                                 ImagesOfRows images = ImagesOfRows::refused);

}  // namespace maestro
