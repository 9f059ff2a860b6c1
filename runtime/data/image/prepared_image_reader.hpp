// SPDX-License-Identifier: Apache-2.0
// Reads the images or sounds of prepared data as rows for an encoder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "runtime/data/image/conversation_view.hpp"
#include "runtime/data/image/image_cache.hpp"
#include "runtime/data/image/mark_rows.hpp"
#include "runtime/data/image/patches.hpp"
#include "runtime/dataset/image_table.hpp"
#include "runtime/dataset/media_processor.hpp"
#include "runtime/dataset/prepared_data.hpp"
#include "runtime/images/mixed_rows.hpp"

namespace maestro {

/// An image of a split, and its number in the cache.
struct NumberedImage {
  ImageCache::Key number = 0;
  PreparedImage image;
  ImagePlace place;
};

/// Thread-safe.
class PreparedImageReader {
 public:
  /// Reads the processor in the folder of prepared data, or in `processor` if it is given, unless `images` have the
  /// sizes of one tile. Throws JobError if it cannot be read. `table` chooses a kind if the data have two. The cache
  /// holds tiles of up to an eighth of the host's memory, at most 4 GiB.
  PreparedImageReader(std::filesystem::path folder, const PreparedImages& images,
                      const std::filesystem::path& processor = {}, Modality table = Modality::image);

  [[nodiscard]] std::int64_t patch_columns() const { return processor_.columns(medium().modality); }
  [[nodiscard]] const Medium& medium() const {
    return processor_.media().size() > 1 ? medium_of(table_) : processor_.medium();
  }
  /// Returns the grid of a tile's patches.
  [[nodiscard]] Result<PatchGrid> tile_grid(const PreparedImage& image) const;
  /// Returns whether the decoder's rows are weighted sums of the encoder's.
  [[nodiscard]] bool mixes_rows() const { return medium() == image_medium && processor_.mixes_rows(); }
  /// Returns what the model's decoder reads from marks.
  [[nodiscard]] const MarkRule& mark_rule() const { return mark_rule_; }
  /// Returns an image with the numbers of its tiles and rows by this processor. The error names file and size.
  [[nodiscard]] Result<PreparedImage> planned(PreparedImage image) const;
  [[nodiscard]] StoredImage stored(const NumberedImage& image) const;

  /// Decodes an image, unless the cache has it, and keeps its tiles until they are read. The error names the image.
  [[nodiscard]] Status prepare(const NumberedImage& image) const;
  /// Writes the rows of a sample's images as ImageProcessor::rows(); tiles are numbered over all images. The error
  /// names the image. Throws std::invalid_argument for spans of another size.
  [[nodiscard]] Status read(std::span<const NumberedImage> images, std::span<float> pixels,
                            std::span<std::int32_t> places) const;
  /// Writes the terms for Corpus::read_mix() of a sample's images. The error names the folder. Throws as read().
  [[nodiscard]] Status mix(std::span<const NumberedImage> images, std::span<std::int32_t> sources,
                           std::span<float> weights) const;
  /// Writes marks (T, 4) of a sample with these images, `tokens` (T) and `prefix` positions before the first learned
  /// token. The error names the folder. Throws as write_marks().
  [[nodiscard]] Status mark(std::span<const NumberedImage> images, std::span<const std::int32_t> tokens,
                            std::int64_t prefix, std::span<std::int32_t> marks) const;

 private:
  [[nodiscard]] Result<ImagePlan> plan(const PreparedImage& image) const;
  [[nodiscard]] Result<ImageCache::Tiles> load(const NumberedImage& image) const;

  std::filesystem::path folder_;
  std::filesystem::path processor_folder_;
  PreparedImages images_;
  MarkRule mark_rule_;
  MediaProcessor processor_;
  Modality table_;
  mutable ImageCache cache_;  // thread-safe, and does not affect the rows
};

}  // namespace maestro
