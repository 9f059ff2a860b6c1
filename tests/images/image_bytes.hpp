// SPDX-License-Identifier: Apache-2.0
// Small PNG, JPEG and WebP files of every kind, written with the libraries' full interfaces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/images/image.hpp"

namespace maestro {

struct PngForm {
  int colour_type = 2;  ///< PNG colour type: 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGB and alpha
  int depth = 8;
  bool interlaced = false;
  std::vector<std::uint8_t> palette;        ///< (entries, 3)
  std::vector<std::uint8_t> palette_alpha;  ///< (entries)
};

/// Returns a PNG. `samples` (height, width, channels): a byte each, or two bytes, big-endian, if the depth is 16.
std::string png_bytes(const PngForm& form, ImageSize size, const std::vector<std::uint8_t>& samples);

/// Returns an 8-bit PNG whose header promises `size` and whose only data chunk holds `data`.
std::string png_promising(int colour_type, bool interlaced, ImageSize size, std::string_view data);

/// Returns the JPEG with an EXIF block, which holds the orientation, after the first marker; `little`: its byte order.
std::string with_orientation(const std::string& jpeg, int orientation, bool little);

/// Returns the PNG with the orientation in an eXIf chunk before or after the pixels; `marked`: with "Exif\0\0".
std::string png_with_orientation(const std::string& png, int orientation, bool after, bool marked);

enum class JpegForm { gray, colour, inks_of_adobe, inks };

/// Returns a JPEG; `samples` (height, width, channels) have 1, 3, 4 and 4 channels.
std::string jpeg_bytes(JpegForm form, ImageSize size, const std::vector<std::uint8_t>& samples);

/// Returns a WebP; `samples` (height, width, 3), or 4 with `alpha`. Lossy files have the best quality.
std::string webp_bytes(bool lossless, bool alpha, ImageSize size, const std::vector<std::uint8_t>& samples);

/// Returns a plain WebP without alpha, given by its bytes, with the header of an extended file: `flags` as in the
/// specification, and an EXIF chunk that holds the orientation.
std::string webp_extended(const std::string& picture, ImageSize size, int flags, int orientation);

Image plain_image(ImageSize size, std::uint8_t red, std::uint8_t green, std::uint8_t blue);

}  // namespace maestro
