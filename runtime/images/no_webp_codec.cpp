// SPDX-License-Identifier: Apache-2.0
// Replaces webp_codec.cpp in builds without libwebp.
#include "runtime/images/image_codecs.hpp"

namespace maestro {

Result<Image> decode_webp(std::string_view /*bytes*/) {
  return Error{ErrorCode::unavailable, "this build cannot read WebP (CMake found no libwebp)"};
}

}  // namespace maestro
