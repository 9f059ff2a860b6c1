// SPDX-License-Identifier: Apache-2.0
// The tokens of a prepared document as another model writes the same text: its tokens for images in place of the
// data's, and its ids of special tokens.
//
// OT-1 (same tokenizer): tokens that are not special have the same ids in both tokenizers. Otherwise the other model is
//       refused, with the first token that differs.
// OT-2 (same text): the text of an image begins and ends with special tokens in both models, so that the tokens of the
//       text around it do not depend on it.
// OT-3 (same answers): learned tokens have the same ids in both models, in the same order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/dataset/image_model.hpp"
#include "runtime/dataset/image_table.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

/// A model as it reads data: its folder, image processor, and tokenizer.
struct ReadingModel {
  std::filesystem::path folder;
  ImageModel images;
  std::shared_ptr<const Tokenizer> tokenizer;
};

/// Reads a model's folder; without a tokenizer there it has `tokenizer`. Errors as read_image_model().
[[nodiscard]] Result<ReadingModel> read_reading_model(const std::filesystem::path& folder,
                                                      std::shared_ptr<const Tokenizer> tokenizer, PassOrder order);

/// Thread-safe.
class OtherTokens {
 public:
  /// `own` is the model of the data. Throws JobError for OT-1.
  OtherTokens(ReadingModel own, ReadingModel other);

  [[nodiscard]] std::int64_t vocabulary() const { return other_.tokenizer->vocabulary(); }
  /// Returns the token at the positions that receive rows of images.
  [[nodiscard]] std::int32_t image_token() const { return other_.images.expander.image_token(); }
  /// Returns the most positions of the other model's decoder.
  [[nodiscard]] std::int64_t positions() const { return other_.images.positions; }
  /// Returns the number of special tokens other than the image token that have other ids.
  [[nodiscard]] std::int64_t moved() const { return moved_; }
  /// Returns whether the tokens of documents without images, and of these images, are the data's, but for the id of the
  /// image token. The error names an image that one of the two models cannot read.
  [[nodiscard]] Result<bool> keeps(std::span<const PreparedImage> images) const;

  /// Tokens, and of each whether it is learned.
  struct Document {
    std::vector<std::int32_t> tokens;
    std::vector<std::uint8_t> learned;
  };
  /// Returns the tokens of a document with these images, or of its beginning. Errors (invalid_argument): OT-2, OT-3, a
  /// special token that the other tokenizer lacks.
  [[nodiscard]] Result<Document> rewritten(const Document& document, std::span<const PreparedImage> images) const;

 private:
  /// The tokens of an image.
  struct Expansion {
    std::vector<std::int32_t> own;
    std::vector<std::int32_t> other;
  };
  [[nodiscard]] Result<std::shared_ptr<const Expansion>> expansion(const PreparedImage& image) const;
  [[nodiscard]] Result<std::vector<std::int32_t>> tokens_of(const ReadingModel& model,
                                                            const ExpandedImage& image) const;

  ReadingModel own_;
  ReadingModel other_;
  std::vector<std::int32_t> ids_;  // by the data's id; -1: the other tokenizer lacks the token
  std::int64_t moved_ = 0;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const Expansion>> known_;  // by the texts and runs of an image
};

}  // namespace maestro
