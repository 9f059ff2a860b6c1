// SPDX-License-Identifier: Apache-2.0
// Resizing of images.
#pragma once

#include "runtime/images/image.hpp"

namespace maestro {

/// Returns the image resized to width x height, each at least 1. Growing is bilinear. For shrinking, the triangle
/// filter is wider by the same factor, so that every pixel counts (an antialiased, area-weighted average). Channels are
/// averaged as stored. An image that has this size already is returned unchanged. Pure; any thread.
[[nodiscard]] Image resize(const Image& image, std::int64_t width, std::int64_t height);

}  // namespace maestro
