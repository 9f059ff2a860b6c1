// SPDX-License-Identifier: Apache-2.0
// The images of a shard of prepared data: five tensors next to its tokens. An image may be a sound: its width is then
// its samples, its height their number per second, and its tiles are clips. Sounds next to images have
// separate tensors, with sound instead of image in the names.
//   image_offsets (D + 1) I64   document d has the images [image_offsets[d], image_offsets[d + 1])
//   images (N, 7) I64           bytes of the file, width, height, images of the conversation that the image was planned
//                               for, tiles, encoder rows, decoder rows
//   image_places (N, 2) I64     number in PreparedImages::containers, and the image's position in it
//   image_names (B) U8          names in the containers, one after the other
//   image_name_ends (N) I64     end of each name
// Places and names are not part of a checksum: the same images may be files, members of an archive, or bytes of rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/modality.hpp"
#include "runtime/core/result.hpp"
#include "runtime/files/safetensors.hpp"
#include "runtime/images/image.hpp"

namespace maestro {

/// Where the bytes of an image are.
struct ImagePlace {
  std::int64_t container = 0;  ///< number in PreparedImages::containers
  std::int64_t position = 0;   ///< byte of the member's header in an archive, first byte in a shard; 0 in a folder
  std::string name;            ///< path in a folder, name of a member; may be empty in a shard
};

struct PreparedImage {
  std::int64_t bytes = 0;
  ImageSize size;              ///< upright
  std::int64_t in_sample = 1;  ///< images of the conversation, which the plan depends on
  std::int64_t tiles = 0;
  std::int64_t encoder_rows = 0;
  std::int64_t visual_rows = 0;
};

/// A view of the tensors of a mapped shard; empty without images. Immutable: thread-safe.
class ImageTable {
 public:
  ImageTable() = default;
  /// Reads the tensors if the file has them. The error (corrupt) states only the reason.
  [[nodiscard]] static Result<ImageTable> read(const SafetensorsFile& file, std::uint64_t documents,
                                               Modality modality = Modality::image);

  [[nodiscard]] std::uint64_t images() const { return places_.size() / 2; }
  /// Returns the first image of a document; first(documents) is the number of images.
  [[nodiscard]] std::uint64_t first(std::uint64_t document) const {
    return offsets_.empty() ? 0 : static_cast<std::uint64_t>(offsets_[document]);
  }
  [[nodiscard]] PreparedImage image(std::uint64_t number) const;
  [[nodiscard]] ImagePlace place(std::uint64_t number) const;
  /// Returns the tensors that checksums cover.
  [[nodiscard]] std::span<const std::int64_t> offsets() const { return offsets_; }
  [[nodiscard]] std::span<const std::int64_t> values() const { return images_; }

 private:
  [[nodiscard]] bool is_whole(std::uint64_t documents) const;

  std::span<const std::int64_t> offsets_;
  std::span<const std::int64_t> images_;
  std::span<const std::int64_t> places_;
  std::span<const std::uint8_t> names_;
  std::span<const std::int64_t> name_ends_;
};

/// The tensors of a shard that is written. One thread.
class ImageTableWriter {
 public:
  explicit ImageTableWriter(Modality modality = Modality::image) : modality_(modality) {}
  void begin();
  void add(const PreparedImage& image, const ImagePlace& place);
  /// Ends the images of a document.
  void end_document() { offsets_.push_back(static_cast<std::int64_t>(places_.size() / 2)); }
  /// Returns views of the tensors, valid until the next call of another member.
  [[nodiscard]] std::vector<NamedTensor> tensors() const;
  [[nodiscard]] std::span<const std::int64_t> offsets() const { return offsets_; }
  [[nodiscard]] std::span<const std::int64_t> values() const { return images_; }

 private:
  Modality modality_;
  std::vector<std::int64_t> offsets_{0};
  std::vector<std::int64_t> images_;
  std::vector<std::int64_t> places_;
  std::vector<std::uint8_t> names_;
  std::vector<std::int64_t> name_ends_;
};

}  // namespace maestro
