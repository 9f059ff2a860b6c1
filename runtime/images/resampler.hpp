// SPDX-License-Identifier: Apache-2.0
// Resizing of images with eight bits per channel, bit for bit as Pillow's Image.resize.
#pragma once

#include <cstdint>

#include "runtime/images/image.hpp"

namespace maestro {

/// Pillow's filters, with the numbers that model folders use.
enum class ResampleFilter : std::uint8_t { nearest = 0, lanczos = 1, bilinear = 2, bicubic = 3 };

/// Order of the pass along rows and the pass along columns. Values are rounded to eight bits between the passes, so the
/// order changes single values by a level or two on photographs.
enum class PassOrder : std::uint8_t {
  pillow13,   ///< columns first if the height shrinks by more than twice as many pixels as the width, else rows first
  horizontal  ///< always rows first: Pillow up to 12, torchvision
};

/// Immutable; any thread.
class Resampler {
 public:
  explicit Resampler(ResampleFilter filter, PassOrder order = PassOrder::pillow13) : filter_(filter), order_(order) {}

  /// Returns the image resized to `to`, whose sides are at least 1. A pass that does not change the size is left out.
  [[nodiscard]] Image resize(const Image& image, ImageSize to) const;

 private:
  ResampleFilter filter_;
  PassOrder order_;
};

}  // namespace maestro
