// SPDX-License-Identifier: Apache-2.0
// Replaces jpeg_codec.cpp in builds without libjpeg.
#include "runtime/images/image_codecs.hpp"

namespace maestro {

Result<Image> decode_jpeg(std::string_view /*bytes*/) {
  return Error{ErrorCode::unavailable, "this build cannot read JPEG (CMake found no libjpeg)"};
}

}  // namespace maestro
