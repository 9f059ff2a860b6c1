// SPDX-License-Identifier: Apache-2.0
// Encodes conversations for models that read a question as a prefix and write the answer as its suffix (PaliGemma,
// Beyer et al. 2024, section 3.1), without a chat template.
//
// QA-1 (same tokens): a question with its answer becomes the tokens that transformers' processor makes from a prompt
//       and a suffix: the image tokens, the begin-of-text token, the question, a newline; then the answer, which is
//       encoded separately, and the end-of-text token.
// QA-2 (targets): the model learns the answer and its end.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/dataset/chat_encoder.hpp"
#include "runtime/dataset/image_expander.hpp"
#include "runtime/dataset/record.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

/// Immutable; `tokenizer` and `images` outlive it. Thread-safe.
class PrefixEncoder {
 public:
  /// `begin_of_text` is the token as the tokenizer spells it. Throws JobError if it, or an end of text, is missing.
  PrefixEncoder(const Tokenizer& tokenizer, const ImageExpander& images, std::string begin_of_text,
                LearnedAnswers learned = LearnedAnswers::all);

  /// Returns a document for each question and its answer, or with LearnedAnswers::last for the last. A document has the
  /// images up to its question, in front of it. Errors: a message that is neither a question nor its answer, an empty
  /// answer, a text that spells the image token.
  [[nodiscard]] Result<std::vector<Document>> encode(const Record& record, RowNotes& notes,
                                                     std::span<const ExpandedImage> images) const;
  /// Returns the tokens of a question after its images. A text that spells the image token is an error.
  [[nodiscard]] Result<std::vector<std::int32_t>> prefix(std::string_view question,
                                                         std::span<const ExpandedImage> images) const;

 private:
  const Tokenizer* tokenizer_;
  const ImageExpander* images_;
  std::string begin_of_text_;
  LearnedAnswers learned_;
};

}  // namespace maestro
