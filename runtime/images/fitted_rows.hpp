// SPDX-License-Identifier: Apache-2.0
// The decoder rows of an image that was fitted into a canvas.
#pragma once

#include "runtime/images/image_plan.hpp"

namespace maestro {

/// Returns the part of a canvas's grid that an image covers, in the middle of the canvas.
[[nodiscard]] ImageGrid covered_grid(ImageSize image, ImageGrid grid);

/// Returns covered_grid(), shrunk if it has more than 1.21 times `most` rows. `grid`
/// is the canvas's grid. The arithmetic equals LlavaOnevisionProcessor.
[[nodiscard]] ImageGrid fitted_grid(ImageSize image, ImageGrid grid, std::int64_t most);

}  // namespace maestro
