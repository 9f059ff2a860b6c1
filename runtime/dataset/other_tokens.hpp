// SPDX-License-Identifier: Apache-2.0
// Whether another model writes prepared documents with the same tokens.
//
// OT-1 (same tokenizer): tokens that are not special have the same ids in both tokenizers. Otherwise the other model is
//       refused, with the first token that differs.
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

  /// Returns the token at the positions that receive rows of images.
  [[nodiscard]] std::int32_t image_token() const { return other_.images.expander.image_token(); }
  /// Returns whether the tokens of documents without images, and of these images, are the data's, but for the id of the
  /// image token. The error names an image that one of the two models cannot read.
  [[nodiscard]] Result<bool> keeps(std::span<const PreparedImage> images) const;

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
  std::int64_t moved_ = 0;  // special tokens other than the image token that have other ids
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const Expansion>> known_;  // by the texts and runs of an image
};

}  // namespace maestro
