// SPDX-License-Identifier: Apache-2.0
// Pictures at another size.
#pragma once

#include "runtime/data/image.hpp"

namespace maestro {

/// The picture at width x height, each at least 1: bilinear where it grows, and where it shrinks the same triangle made
/// as many times wider, so that every pixel counts (an antialiased, area-weighted average). Channels are averaged as
/// stored. The same size gives the same pixels. Pure; any thread.
[[nodiscard]] Image resize(const Image& image, std::int64_t width, std::int64_t height);

}  // namespace maestro
