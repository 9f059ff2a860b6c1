// SPDX-License-Identifier: Apache-2.0
// Replaces sound_codec.cpp in builds without libsndfile.
#include "runtime/sound/sound_codec.hpp"

namespace maestro {

Result<std::vector<float>> decode_samples(std::string_view /*bytes*/, const SoundFormat& /*format*/) {
  return Error{ErrorCode::unavailable, "this build cannot read sounds (CMake found no libsndfile)"};
}

}  // namespace maestro
