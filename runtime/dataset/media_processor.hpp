// SPDX-License-Identifier: Apache-2.0
// What a model reads in addition to text: images or sounds, from files to rows. A sound takes an image's way: its size
// is its samples by its rate, its clip is a tile, and its rows have the places (0, r, 0).
//
// MD-1 (kinds): a model reads images, sounds or both; a file of a kind that is not read, or not named there, is refused
//       by its name.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/images/image_processor.hpp"
#include "runtime/images/mixed_rows.hpp"
#include "runtime/sound/sound_processor.hpp"

namespace maestro {

/// The kinds, and their words in rows and messages.
struct Medium {
  Modality modality;
  std::string_view noun;    ///< "image"
  std::string_view type;    ///< type of a message part: "image", "audio"
  std::string_view url;     ///< type and key of a part with a URL: "image_url"
  std::string_view column;  ///< column of a row; a list has an s at its end: "image", "images"
  std::string_view marker;  ///< place in the text of a question: "<image>"
  friend bool operator==(const Medium& a, const Medium& b) { return a.noun == b.noun; }
};
inline constexpr Medium image_medium{Modality::image, "image", "image", "image_url", "image", "<image>"};
inline constexpr Medium sound_medium{Modality::sound, "sound", "audio", "audio_url", "audio", "<audio>"};
inline constexpr std::array<Medium, 2> all_media{image_medium, sound_medium};
/// Some of the kinds, images first.
using Media = std::span<const Medium>;
[[nodiscard]] constexpr const Medium& medium_of(Modality modality) {
  return all_media[static_cast<std::size_t>(modality)];
}
/// Returns the noun with an article.
[[nodiscard]] inline std::string one_of(const Medium& medium) {
  return (medium == image_medium ? "an " : "a ") + std::string(medium.noun);
}

/// A file's content on its way to rows: the tiles of an image, or the frames of a sound.
using MediaContent = std::variant<std::vector<Image>, MelFrames>;
/// Returns the bytes of memory that it takes.
[[nodiscard]] std::size_t bytes_of(const MediaContent& content);

/// Returns the size that the header of a file states. Errors as image_size() and read_sound_format(); MD-1, if the file
/// is not of the `medium`, one of `read`, which the model reads; empty: it reads no other.
[[nodiscard]] Result<ImageSize> media_size(std::string_view bytes, const std::string& name, const Medium& medium,
                                           Media read = {});
/// Does the same for a file on disk.
[[nodiscard]] Result<ImageSize> media_size(const std::filesystem::path& file, const Medium& medium, Media read = {});
/// Returns the kind of a file, one of `read`: the only one, or a sound if its content begins as one.
[[nodiscard]] const Medium& medium_of(const std::filesystem::path& file, Media read);
/// Returns the kind of a file that begins with `start`, in the same way.
[[nodiscard]] inline const Medium& medium_of(std::string_view start, Media read) {
  return read.size() > 1 && is_sound(start) ? sound_medium : read.front();
}
/// Returns whether a file that begins with `start` has its size before its content.
[[nodiscard]] inline bool media_size_stands_first(std::string_view start) {
  return size_stands_first(start) || is_sound(start);
}

/// Immutable; any thread.
class MediaProcessor {
 public:
  MediaProcessor(ImageProcessor images) : images_(std::move(images)) {}  // NOLINT(google-explicit-constructor)
  MediaProcessor(SoundProcessor sounds) : sounds_(std::move(sounds)) {}  // NOLINT(google-explicit-constructor)
  MediaProcessor(ImageProcessor images, SoundProcessor sounds)
      : images_(std::move(images)), sounds_(std::move(sounds)) {}

  /// Reads the processor of a folder. Errors as read_image_settings() and read_encoder_grid(), or as
  /// read_sound_settings() and read_sound_grid().
  [[nodiscard]] static Result<MediaProcessor> read(const std::filesystem::path& folder, PassOrder order);

  /// Returns the kinds that are read.
  [[nodiscard]] Media media() const {
    const Media all(all_media);
    return images_ && sounds_ ? all : images_ ? all.first(1) : all.last(1);
  }
  /// Returns the first of them.
  [[nodiscard]] const Medium& medium() const { return media().front(); }
  /// Returns the processor of images; null if they are not read.
  [[nodiscard]] const ImageProcessor* images() const { return images_ ? &*images_ : nullptr; }
  /// Returns the processor of sounds; null if they are not read.
  [[nodiscard]] const SoundProcessor* sounds() const { return sounds_ ? &*sounds_ : nullptr; }

  /// Returns the plan of a file of a kind that is read, with this size. Errors as ImageProcessor::plan() and
  /// SoundProcessor::plan().
  [[nodiscard]] Result<ImagePlan> plan(ImageSize size, std::int64_t in_sample, Modality modality) const;
  /// Does the same for the first kind.
  [[nodiscard]] Result<ImagePlan> plan(ImageSize size, std::int64_t in_sample = 1) const {
    return plan(size, in_sample, medium().modality);
  }
  /// Decodes a file's bytes. Errors begin with `name`: as decode_image() and read_sound(), another size than when the
  /// plan was made.
  [[nodiscard]] Result<MediaContent> decode(std::string_view bytes, const std::string& name,
                                            const ImagePlan& plan) const;
  /// Decodes a file on disk.
  [[nodiscard]] Result<MediaContent> decode(const std::filesystem::path& file, const ImagePlan& plan) const;
  /// Writes rows as ImageProcessor::rows() and SoundProcessor::rows(). Throws std::invalid_argument for the other kind.
  void rows(const MediaContent& content, std::span<float> pixels, std::span<std::int32_t> places) const;

  [[nodiscard]] std::int64_t columns(Modality modality) const;
  [[nodiscard]] std::int64_t columns() const { return columns(medium().modality); }
  /// Returns the grid of a tile's places.
  [[nodiscard]] ImageGrid tile_grid(const ImagePlan& plan) const;
  /// Returns whether the decoder's rows are weighted sums of the encoder's (mixed_rows()).
  [[nodiscard]] bool mixes_rows() const { return images() != nullptr && maestro::mixes_rows(images()->settings()); }
  [[nodiscard]] std::string fingerprint() const;

 private:
  [[nodiscard]] Result<MediaContent> content(const Result<Image>& image, const std::string& name,
                                             const ImagePlan& plan) const;
  [[nodiscard]] Result<MediaContent> content(const Result<Sound>& sound, const std::string& name,
                                             const ImagePlan& plan) const;

  std::optional<ImageProcessor> images_;
  std::optional<SoundProcessor> sounds_;
};

}  // namespace maestro
