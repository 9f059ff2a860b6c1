// SPDX-License-Identifier: Apache-2.0
// Images of a prompt, as the vision-language model in a folder sees them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/dataset/image_model.hpp"
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

  /// Returns the tokens of a template's text with a placeholder for each image: `image_token` for each row of visual().
  /// Throws JobError for another number of placeholders.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
  /// Returns the rows that the decoder receives, (V, width).
  [[nodiscard]] const Tensor& visual() const { return visual_; }

 private:
  const Tokenizer* tokenizer_;
  ImageModel model_;
  std::vector<ExpandedImage> texts_;
  std::unique_ptr<ImageReader> reader_;
  Tensor visual_;  // of reader_
};

}  // namespace maestro
