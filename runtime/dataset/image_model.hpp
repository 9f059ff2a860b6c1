// SPDX-License-Identifier: Apache-2.0
// The part of a model for images or sounds, for data: their way to rows, and the text that stands for them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/dataset/image_expander.hpp"
#include "runtime/dataset/media_processor.hpp"
#include "runtime/dataset/reserved_tokens.hpp"
#include "runtime/model/decoder_config.hpp"

namespace maestro {

/// Immutable; any thread.
struct ImageModel {
  MediaProcessor processor;
  ImageExpander expander;
  ImageMask mask = ImageMask::causal;  ///< mask of the decoder
  std::int64_t positions = 0;          ///< most positions of the decoder
  /// Returns 32 hexadecimal digits over everything that determines rows and tokens of images.
  [[nodiscard]] std::string fingerprint() const;
};

/// Reads config.json, the settings of images or sounds, and the tokens of a folder. Errors name file and key, as of
/// MediaProcessor::read() and ImageExpander::read().
[[nodiscard]] Result<ImageModel> read_image_model(const std::filesystem::path& folder, const Tokenizer& tokenizer,
                                                  PassOrder order);

/// Returns the image part of a model without a processor: a token for each patch of scaled_processor()'s tile.
[[nodiscard]] ImageModel image_model_of(const ScaledTile& tile, const ReservedTokens& tokens);

/// Names of the files in a folder that read_image_model() reads.
[[nodiscard]] std::vector<std::string> image_model_files(const std::filesystem::path& folder);

}  // namespace maestro
