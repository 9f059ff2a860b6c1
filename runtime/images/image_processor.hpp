// SPDX-License-Identifier: Apache-2.0
// The image settings of a model folder, applied: from a decoded image to the rows of the encoder.
//
// IM-1 (pixels): tiles equal those of transformers' classes for Pillow, byte for byte, with Pillow's order of passes.
// IM-2 (plans): a plan depends only on the settings, the image's size, and whether the sample has other images.
// IM-3 (keys): every key of the file is used, known to be without effect, or refused by its name.
// IM-4 (fingerprint): objects with equal fingerprints give equal rows.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/images/image_settings.hpp"

namespace maestro {

/// Immutable; any thread.
class ImageProcessor {
 public:
  /// Throws JobError if settings and encoder disagree, such as a tile whose patches cannot be joined.
  ImageProcessor(ImageSettings settings, EncoderGrid encoder);

  /// Returns the way of an image to its tiles, and the numbers of rows. Errors (invalid_argument) name the settings'
  /// file and the image's size: the image is too narrow, or would become too large.
  [[nodiscard]] Result<ImagePlan> plan(ImageSize size, std::int64_t images_in_sample = 1) const;

  /// Returns the tiles of a plan. Throws std::invalid_argument if the plan is for another size.
  [[nodiscard]] std::vector<Image> tiles(const Image& image, const ImagePlan& plan) const;

  /// Writes the rows of tiles: pixels (R, 3 x patch x patch) in (channel, row, column) order, scaled and normalised,
  /// and places (R, 3) = (tile, row, column). The patches of a decoder row stand together: blocks of merge x merge, row
  /// by row, in blocks and of blocks. A class row begins its tile, with zeros and the place (tile, -1, -1). Pixels
  /// right of and below the last patch are left out. Throws std::invalid_argument if the spans have another size.
  void rows(std::span<const Image> tiles, std::span<float> pixels, std::span<std::int32_t> places) const;

  /// Writes how the rows of a fitted image become the decoder's rows (mixed_rows()): sources (V, 4), counted from
  /// `first`, the number of the image's first row in its sample, and weights (V, 4). Throws std::invalid_argument if
  /// the spans have another size, and for other geometries.
  void mix(const ImagePlan& plan, std::int32_t first, std::span<std::int32_t> sources, std::span<float> weights) const;
  /// Returns whether the decoder's rows are mixed.
  [[nodiscard]] bool mixes() const { return std::holds_alternative<FittedTiles>(settings_.geometry); }

  [[nodiscard]] const ImageSettings& settings() const { return settings_; }
  [[nodiscard]] const EncoderGrid& encoder() const { return encoder_; }
  /// Returns 32 hexadecimal digits over all settings, the order of passes, and the encoder's grid.
  [[nodiscard]] std::string fingerprint() const;

 private:
  [[nodiscard]] ImageGrid patches_of(ImageSize tile) const;
  void count_rows(ImagePlan& plan) const;

  ImageSettings settings_;
  EncoderGrid encoder_;
  std::array<std::array<float, 256>, 3> values_{};  // (channel, byte)
};

/// Returns the processor of a model without a folder: it resizes bilinearly, with values in [-1, 1].
[[nodiscard]] ImageProcessor scaled_processor(const ScaledTile& tile);

/// Reads the settings of a folder: processor_config.json if it has image_processor, else preprocessor_config.json.
/// Absent and null keys have the defaults of the class in transformers. Errors (invalid_argument, not_found) name file
/// and key: no such file, a class outside of image_processor_names(), a value or a key that is not supported.
[[nodiscard]] Result<ImageSettings> read_image_settings(const std::filesystem::path& folder,
                                                        PassOrder order = PassOrder::pillow13);
/// Returns the supported values of image_processor_type, without "Fast" and "Pil" at the end.
[[nodiscard]] std::vector<std::string> image_processor_names();

}  // namespace maestro
