// SPDX-License-Identifier: Apache-2.0
// Images and sounds of a prompt, as the model in a folder reads them.
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
#include "sections/decoder/generation.hpp"
#include "sections/vision/image_reader.hpp"

namespace maestro {

/// Not thread-safe.
class SeenImages {
 public:
  /// Reads the files and runs the folder's encoders and projectors. Throws JobError that names the file or the folder;
  /// files of a kind that the model does not read are refused.
  SeenImages(const std::filesystem::path& folder, std::span<const std::filesystem::path> images,
             std::span<const std::filesystem::path> sounds, const Tokenizer& tokenizer, const OperatorTable& ops,
             DType precision);
  SeenImages(const SeenImages&) = delete;
  SeenImages& operator=(const SeenImages&) = delete;

  /// Returns the tokens of a template's text with a placeholder for each file, images first: `image_token` or
  /// `sound_token` for each of their rows. Throws JobError for another number of placeholders.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
  /// Returns whether the model reads prefixes, without a template.
  [[nodiscard]] bool reads_prefixes() const { return prefix_.has_value(); }
  /// Returns the tokens of a question to a model that reads prefixes; nothing for models with a template.
  [[nodiscard]] std::optional<std::vector<std::int32_t>> prefix(std::string_view question) const;
  /// Returns the marks (T, 4) of a prompt; empty if the model's decoder does not read marks.
  [[nodiscard]] std::vector<std::int32_t> marks(std::span<const std::int32_t> tokens) const;
  /// Returns the rows that the decoder receives, with these marks of the prompt.
  [[nodiscard]] PromptImages rows(std::span<const std::int32_t> marks) const;
  /// Returns the kind of each file, in order.
  [[nodiscard]] const std::vector<Medium>& media() const { return media_; }

 private:
  /// Reads the files of a kind.
  void read(const std::filesystem::path& folder, std::span<const std::filesystem::path> files, const Medium& medium,
            const OperatorTable& ops, DType precision);
  /// Returns the tokens with image_token for the model's.
  [[nodiscard]] std::vector<std::int32_t> marked(std::vector<std::int32_t> tokens) const;

  const Tokenizer* tokenizer_;
  ImageModel model_;
  MarkRule rule_;
  std::vector<ExpandedImage> texts_;
  std::vector<Medium> media_;
  std::vector<ImageGrid> grids_;
  std::optional<PrefixEncoder> prefix_;  // refers to model_
  std::vector<std::unique_ptr<ImageReader>> readers_;
  ImageRows rows_, heard_;  // of readers_
};

}  // namespace maestro
