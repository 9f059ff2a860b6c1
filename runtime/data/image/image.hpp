// SPDX-License-Identifier: Apache-2.0
// Pictures from files: PNG, JPEG and WebP, distinguished by content, never by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// Longest side of a picture that is read, pixels.
inline constexpr std::int64_t largest_image_side = 16384;
/// Pixels of a picture that is read, as Pillow's limit (twice its MAX_IMAGE_PIXELS); they take 3 bytes each.
inline constexpr std::int64_t largest_image_pixels = 178'956'970;

struct ImageSize {
  std::int64_t width = 0;
  std::int64_t height = 0;
  friend bool operator==(ImageSize, ImageSize) = default;
};

/// Red, green, blue, eight bits each, as stored (no colour management); pixels (height, width, 3), upright.
struct Image {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> pixels;
  [[nodiscard]] ImageSize size() const { return {width, height}; }
};

/// Decodes the picture in a file. PNG of every colour type and depth, interlaced or not, alpha composited on white
/// (linearly in the stored values), as in WebP; JPEG in gray, YCbCr, RGB, CMYK and YCCK; WebP with and without loss,
/// but no animation. Each is turned by its EXIF orientation (of a PNG, its eXIf chunk). Sizes are checked
/// before memory is allocated, and pixels take memory as the file delivers rows. The error names the file and the
/// fault: missing, not an image, truncated, no pixels, over 16384 pixels a side or 178,956,970 in all, or the library's
/// own message. Any thread.
[[nodiscard]] Result<Image> decode_image(const std::filesystem::path& file);
/// The same of a file's bytes, which errors call `name`.
[[nodiscard]] Result<Image> decode_image(std::string_view bytes, const std::string& name);

/// Reads the header, and of a PNG or WebP the heads of its chunks, but no pixels, which may still be broken. Errors as
/// decode_image.
[[nodiscard]] Result<ImageSize> image_size(const std::filesystem::path& file);
/// The same of a file's bytes.
[[nodiscard]] Result<ImageSize> image_size(std::string_view bytes, const std::string& name);
/// Returns whether the first bytes of a file are enough for its size: a JPEG's orientation stands before its pixels.
[[nodiscard]] bool size_stands_first(std::string_view start);

/// Returns the bytes of a PNG file that holds the picture without loss.
[[nodiscard]] Result<std::string> encode_png(const Image& image);

}  // namespace maestro
