// SPDX-License-Identifier: Apache-2.0
// The header of a WebP file, by the "WebP Container Specification" and RFC 6386 (VP8, section 9.1).
#pragma once

#include <istream>

#include "runtime/core/result.hpp"
#include "runtime/images/image.hpp"

namespace maestro {

struct WebpHeader {
  ImageSize size;       ///< size before the orientation is applied
  int orientation = 1;  ///< result of exif_orientation()
};

/// Reads the chunks of a file, starting after "RIFF", a length and "WEBP", up to the EXIF block if the header announces
/// it. Errors state only the reason: truncated, broken, an animation.
[[nodiscard]] Result<WebpHeader> webp_header(std::istream& stream);

}  // namespace maestro
