// SPDX-License-Identifier: Apache-2.0
// Turns photographs upright. Cameras store pixels in the sensor's orientation and record it in an EXIF tag.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/images/image.hpp"

namespace maestro {

/// Value of the tag Orientation (EXIF 2.3, 4.6.4 A) for an image that is stored upright. The values 1 to 8 name the
/// sides of the upright image that the first stored row and column belong to; 1: top and left.
inline constexpr int as_stored = 1;

/// Returns the orientation in an EXIF block; as_stored if the block is damaged or lacks the tag. The block is TIFF
/// data, with or without the prefix "Exif\0\0", which some programs write in every format.
[[nodiscard]] int exif_orientation(std::string_view block);

/// Most bytes of a block that are searched for the orientation.
inline constexpr std::int64_t largest_exif = 1 << 16;

/// Returns the upright size of an image of `stored` size.
[[nodiscard]] ImageSize upright(ImageSize stored, int orientation);
/// Returns the image turned upright, as Pillow's ImageOps.exif_transpose does.
[[nodiscard]] Image upright(Image stored, int orientation);

}  // namespace maestro
