// SPDX-License-Identifier: Apache-2.0
// Images from files: PNG, JPEG and WebP, distinguished by content, never by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// Longest side of an image that is read, in pixels.
inline constexpr std::int64_t largest_image_side = 16384;
/// Most pixels of an image that is read: Pillow's limit (twice its MAX_IMAGE_PIXELS). A pixel takes 3 bytes.
inline constexpr std::int64_t largest_image_pixels = 178'956'970;

struct ImageSize {
  std::int64_t width = 0;
  std::int64_t height = 0;
  friend bool operator==(ImageSize, ImageSize) = default;
};

/// An upright RGB image with eight bits per channel, as stored (no colour management); pixels are (height, width, 3).
struct Image {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> pixels;
  [[nodiscard]] ImageSize size() const { return {width, height}; }
};

/// Decodes the image in a file: PNG of every colour type and depth, interlaced or not; JPEG in gray, YCbCr, RGB, CMYK
/// and YCCK; lossy and lossless WebP, but not animations. Alpha is composited on white (linearly in the stored values).
/// The image is turned upright by its EXIF orientation (in a PNG, the eXIf chunk). Sizes are checked before memory is
/// allocated, and memory grows with the rows that the file delivers. The error names the file and the fault: missing,
/// not an image, truncated, no pixels, over 16384 pixels a side or 178,956,970 in all, or the library's message. Any
/// thread.
[[nodiscard]] Result<Image> decode_image(const std::filesystem::path& file);
/// Decodes the bytes of such a file; errors call it `name`.
[[nodiscard]] Result<Image> decode_image(std::string_view bytes, const std::string& name);

/// Returns the upright size from the header and, in a PNG or WebP, the heads of its chunks. Pixels are not read and may
/// be broken. Returns the same errors as decode_image.
[[nodiscard]] Result<ImageSize> image_size(const std::filesystem::path& file);
/// Returns the size from the bytes of such a file; errors call it `name`.
[[nodiscard]] Result<ImageSize> image_size(std::string_view bytes, const std::string& name);
/// Returns whether a file that begins with `start` has its size and orientation before its pixels: only JPEG does.
[[nodiscard]] bool size_stands_first(std::string_view start);

/// Returns the bytes of a PNG file with this image; PNG is lossless.
[[nodiscard]] Result<std::string> encode_png(const Image& image);

}  // namespace maestro
