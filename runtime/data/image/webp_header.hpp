// SPDX-License-Identifier: Apache-2.0
// The header of a WebP file, by the "WebP Container Specification" and RFC 6386 (VP8, section 9.1).
#pragma once

#include <istream>

#include "runtime/core/result.hpp"
#include "runtime/data/image/image.hpp"

namespace maestro {

struct WebpHeader {
  ImageSize size;       ///< as stored
  int orientation = 1;  ///< as exif_orientation() returns it
};

/// Reads the chunks of a file from behind "RIFF", its length and "WEBP" on, up to the EXIF block where the file
/// announces one. Errors state a reason only: truncated, broken, an animation.
[[nodiscard]] Result<WebpHeader> webp_header(std::istream& stream);

}  // namespace maestro
