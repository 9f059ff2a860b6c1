// SPDX-License-Identifier: Apache-2.0
// Images of a prompt, as the vision-language model in a folder sees them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/data/image/mark_rows.hpp"
#include "runtime/dataset/image_model.hpp"
#include "runtime/dataset/prefix_encoder.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "sections/vision/image_reader.hpp"

namespace maestro {

/// Not thread-safe.
class SeenImages {
 public:
  /// Reads the files and runs the folder's vision encoder and projector. Throws JobError that names the file or the
  /// folder.
  SeenImages(const std::filesystem::path& folder, std::span<const std::filesystem::path> files,
             const Tokenizer& tokenizer, const OperatorTable& ops, DType precision);
  SeenImages(const SeenImages&) = delete;
  SeenImages& operator=(const SeenImages&) = delete;

  /// Returns the tokens of a template's text with a placeholder for each image: `image_token` for each of rows().
  /// Throws JobError for another number of placeholders.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
  /// Returns whether the model reads prefixes, without a template.
  [[nodiscard]] bool reads_prefixes() const { return prefix_.has_value(); }
  /// Returns the tokens of a question to a model that reads prefixes; nothing for models with a template.
  [[nodiscard]] std::optional<std::vector<std::int32_t>> prefix(std::string_view question) const;
  /// Returns the marks (T, 4) of a prompt; empty if the model's decoder does not read marks.
  [[nodiscard]] std::vector<std::int32_t> marks(std::span<const std::int32_t> tokens) const;
  /// Returns the rows that the decoder receives.
  [[nodiscard]] const ImageRows& rows() const { return rows_; }

 private:
  /// Returns the tokens with image_token for the model's.
  [[nodiscard]] std::vector<std::int32_t> marked(std::vector<std::int32_t> tokens) const;

  const Tokenizer* tokenizer_;
  ImageModel model_;
  MarkRule rule_;
  std::vector<ExpandedImage> texts_;
  std::vector<ImageGrid> grids_;
  std::optional<PrefixEncoder> prefix_;  // refers to model_
  std::unique_ptr<ImageReader> reader_;
  ImageRows rows_;  // of reader_
};

}  // namespace maestro
