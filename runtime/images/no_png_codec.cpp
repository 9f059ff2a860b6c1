// SPDX-License-Identifier: Apache-2.0
// Replaces png_codec.cpp in builds without libpng.
#include "runtime/images/image_codecs.hpp"

namespace maestro {

Result<Image> decode_png(std::string_view /*bytes*/) {
  return Error{ErrorCode::unavailable, "this build cannot read PNG (CMake found no libpng)"};
}

Result<std::string> encode_png(const Image& /*image*/) {
  return Error{ErrorCode::unavailable, "this build cannot write PNG (CMake found no libpng)"};
}

}  // namespace maestro
