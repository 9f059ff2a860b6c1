// SPDX-License-Identifier: Apache-2.0
// Compares a template's text of a conversation with the row: texts that it leaves out, keys that it does not read,
// special tokens that texts spell.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/chat/chat_template.hpp"
#include "runtime/core/result.hpp"
#include "runtime/dataset/record.hpp"
#include "runtime/dataset/row_notes.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

struct ChatEncoderOptions;

/// A learned answer in the template's texts.
struct LearnedAnswer {
  std::size_t message = 0;
  std::string prompt = {};                  ///< text for the messages before, with the beginning of an answer
  RenderedChat until = {};                  ///< text with the answer
  std::size_t begin = 0;                    ///< start of the answer in until.text
  bool differs = false;                     ///< until.text does not begin with the prompt
  std::string example = {};                 ///< both texts around their first difference
  bool is_last = false;                     ///< the answer is the last in its document
  std::optional<std::int32_t> end = {};     ///< the token that ends it, from outside of its turn
  std::size_t characters = 0, missing = 0;  ///< characters in the row's texts
};

/// Returns the place of a message, for messages to users.
[[nodiscard]] std::string message_place(std::size_t message);
/// Returns the texts of an answer: content, reasoning, names and arguments of tool calls; trimmed and not empty.
[[nodiscard]] std::vector<std::string> texts_of_answer(const ChatMessage& message);

/// Immutable; the arguments outlive it.
class ChatReview {
 public:
  ChatReview(const Tokenizer& tokenizer, const ChatTemplate& chat, const Record& record, const ChatContext& context)
      : tokenizer_(tokenizer), chat_(chat), record_(record), context_(context) {}

  /// Counts the characters of each answer that the template's text lacks. An answer with only tool calls or thoughts
  /// that the template passes over is noted and leaves the list: it cannot be learned. Errors: another answer without
  /// any text left, or a list without any answer left.
  [[nodiscard]] Status measure(std::vector<LearnedAnswer>& answers, RowNotes& notes) const;
  void report(std::span<const LearnedAnswer> answers, const ChatEncoderOptions& options, RowNotes& notes) const;

 private:
  [[nodiscard]] Status check_kept(const LearnedAnswer& answer) const;
  [[nodiscard]] std::string reason_of_loss(const ChatMessage& message) const;
  void report_texts(std::span<const ChatMessage> messages, std::string_view text, RowNotes& notes) const;
  void report_keys(std::span<const ChatMessage> messages, const LearnedAnswer& last, RowNotes& notes) const;
  void report_variables(std::span<const ChatMessage> messages, const LearnedAnswer& last, RowNotes& notes) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_;
  const Record& record_;
  const ChatContext& context_;
};

}  // namespace maestro
