// SPDX-License-Identifier: Apache-2.0
// Encodes records as documents: texts with the tokens that begin and end them, conversations by a chat template.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/chat/chat_template.hpp"
#include "runtime/dataset/chat_encoder.hpp"
#include "runtime/dataset/image_model.hpp"
#include "runtime/dataset/prefix_encoder.hpp"
#include "runtime/dataset/prepare.hpp"
#include "runtime/dataset/record.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

struct TokenizerConfig;

/// Immutable: thread-safe.
class DocumentEncoder {
 public:
  /// Uses tokenizer, processor, scaled, resample_order, chat_template, end_of_turn, learned, date and begin_of_text.
  /// Throws JobError: a tokenizer, a processor or a template that cannot be read, an end_of_turn that is not a single
  /// token, a date that is not a day.
  explicit DocumentEncoder(const PrepareOptions& options);

  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// Returns an error if conversations need a template that is missing; a prompt and its completion need none.
  [[nodiscard]] Status takes_conversations(bool completion) const;
  /// Returns the documents of a record: one, except for conversations (see ChatEncoder::encode()). Without a template,
  /// a prompt and its completion are one document; the completion and the end of the text are targets.
  /// `images` has a plan for each image in the record.
  [[nodiscard]] Result<std::vector<Document>> encode(const Record& record, RowNotes& notes,
                                                     std::span<const ImagePlan> images = {}) const;
  /// Returns the image part of PrepareOptions::processor or PrepareOptions::scaled; null: none.
  [[nodiscard]] const ImageModel* images() const { return images_ ? &*images_ : nullptr; }
  /// Returns conversation settings that follow from the template: the date that it prints, the rule for learned parts.
  [[nodiscard]] const std::map<std::string, std::string>& template_settings() const { return template_settings_; }

 private:
  void open_template(const PrepareOptions& options);
  [[nodiscard]] ChatContext context_of(const TokenizerConfig& config, const PrepareOptions& options);
  [[nodiscard]] std::vector<std::int32_t> ends(const PrepareOptions& options) const;
  [[nodiscard]] Result<std::vector<Document>> encode_images(const Record& record, RowNotes& notes,
                                                            std::span<const ImagePlan> images) const;
  [[nodiscard]] bool takes_parts(const ChatContext& context) const;
  [[nodiscard]] Document text_document(const Record& record) const;
  [[nodiscard]] Result<Document> completion_document(const Record& record) const;

  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ImageModel> images_;
  bool parts_ = true;  // the template reads contents that are lists of parts; else they are texts with placeholders
  bool begin_of_text_;
  LearnedAnswers learned_;
  std::string missing_template_;  // reason for a missing template
  std::map<std::string, std::string> template_settings_;
  std::unique_ptr<ChatTemplate> template_;
  std::optional<ChatEncoder> chat_;
  std::optional<PrefixEncoder> prefix_;  // of a model that reads prefixes, without a template
};

}  // namespace maestro
