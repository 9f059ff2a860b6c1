// SPDX-License-Identifier: Apache-2.0
// In place of webp_codec.cpp where a build was made without libwebp.
#include "runtime/data/image/image_codecs.hpp"

namespace maestro {

Result<Image> decode_webp(std::string_view /*bytes*/) {
  return Error{ErrorCode::unavailable, "this build cannot read WebP (CMake found no libwebp)"};
}

}  // namespace maestro
