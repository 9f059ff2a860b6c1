// SPDX-License-Identifier: Apache-2.0
// The decoder of samples, from memory. Its errors state only the reason; read_sound adds the file.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/sound/sound.hpp"

namespace maestro {

/// Returns the mean of the channels. The caller has read `format` in the header. Memory grows with the samples that the
/// file delivers.
[[nodiscard]] Result<std::vector<float>> decode_samples(std::string_view bytes, const SoundFormat& format);

}  // namespace maestro
