// SPDX-License-Identifier: Apache-2.0
// Turns photographs upright: cameras store pixels in the sensor's orientation and record it as an EXIF tag.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/data/image/image.hpp"

namespace maestro {

/// Value 1 to 8 of the tag Orientation (EXIF 2.3, 4.6.4 A): where the stored first row and first column belong. 1: top
/// and left, as stored.
inline constexpr int as_stored = 1;

/// Returns the orientation in an EXIF block, in its TIFF form or with "Exif\0\0" before it, as some programs write it
/// everywhere; as_stored if it has no such tag or is damaged.
[[nodiscard]] int exif_orientation(std::string_view block);

/// Bytes of a block that are searched for the orientation.
inline constexpr std::int64_t largest_exif = 1 << 16;

/// Returns the size of a picture of `stored` size after it is turned upright.
[[nodiscard]] ImageSize upright(ImageSize stored, int orientation);
/// Returns the picture turned upright, as Pillow's ImageOps.exif_transpose does.
[[nodiscard]] Image upright(Image stored, int orientation);

}  // namespace maestro
