// SPDX-License-Identifier: Apache-2.0
// Decoders of single formats, from memory. Their errors state a reason only; decode_image adds the file.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/data/image/image.hpp"

namespace maestro {

/// `bytes` starts with a PNG header whose size has been checked.
[[nodiscard]] Result<Image> decode_png(std::string_view bytes);
/// `bytes` starts with a JPEG header whose size has been checked.
[[nodiscard]] Result<Image> decode_jpeg(std::string_view bytes);

/// `bytes` starts with a WebP header whose size has been checked, of a still picture.
[[nodiscard]] Result<Image> decode_webp(std::string_view bytes);

/// Returns a colour with alpha on white, in the stored values: 0 to 255 each.
[[nodiscard]] std::uint8_t on_white(unsigned colour, unsigned alpha);

/// Reserves room for `count` more of a picture's `whole` bytes: for all of them up to 32 MB, beyond that in doubling
/// steps, so that a picture takes memory for the rows that its file delivers.
void make_room(std::vector<std::uint8_t>& pixels, std::size_t count, std::size_t whole);

}  // namespace maestro
