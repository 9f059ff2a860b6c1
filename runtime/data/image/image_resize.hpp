// SPDX-License-Identifier: Apache-2.0
// Resizing of pictures.
#pragma once

#include "runtime/data/image/image.hpp"

namespace maestro {

/// Returns the picture at width x height, each at least 1: bilinear if it grows; if it shrinks, the triangle of the
/// filter is wider by the same factor, so that every pixel counts (an antialiased, area-weighted average). Channels are
/// averaged as stored. At the same size the pixels stay the same. Pure; any thread.
[[nodiscard]] Image resize(const Image& image, std::int64_t width, std::int64_t height);

}  // namespace maestro
