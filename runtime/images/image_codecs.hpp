// SPDX-License-Identifier: Apache-2.0
// Decoders of the single formats, from memory. Their errors state only the reason; decode_image adds the file.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/images/image.hpp"

namespace maestro {

/// Decodes a PNG file. The caller has checked the size in its header.
[[nodiscard]] Result<Image> decode_png(std::string_view bytes);
/// Decodes a JPEG file. The caller has checked the size in its header.
[[nodiscard]] Result<Image> decode_jpeg(std::string_view bytes);

/// Decodes a WebP file. The caller has checked the size in its header, and that it is not an animation.
[[nodiscard]] Result<Image> decode_webp(std::string_view bytes);

/// Returns a colour with alpha composited on white; all values are stored values in [0, 255].
[[nodiscard]] std::uint8_t on_white(unsigned colour, unsigned alpha);

/// Reserves space for the next `count` bytes of an image. Images below 32 MB get all their bytes (`whole`) at once,
/// larger images get them in doubling steps, so that memory grows with the rows that the file delivers.
void make_room(std::vector<std::uint8_t>& pixels, std::size_t count, std::size_t whole);

}  // namespace maestro
