// SPDX-License-Identifier: Apache-2.0
// The way from a decoded image to the tiles that an encoder receives, as data.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/core/modality.hpp"
#include "runtime/images/image.hpp"

namespace maestro {

using Colour = std::array<std::uint8_t, 3>;  // red, green, blue

/// An image made from another one: resampled, and placed on a canvas that pads or cuts it.
struct ImageStage {
  std::size_t from = 0;   ///< input: 0 is the decoded image, n the result of the n-th stage
  ImageSize resized;      ///< size after resampling
  ImageSize canvas;       ///< size of the result
  std::int64_t left = 0;  ///< column of the canvas where the resampled image begins; negative: cut
  std::int64_t top = 0;   ///< row of the canvas where the resampled image begins; negative: cut
  Colour colour{};        ///< colour of the canvas outside of the resampled image
};

/// A rectangle that the encoder sees as a separate image.
struct ImageTile {
  std::size_t from = 0;  ///< source, as in ImageStage
  std::int64_t left = 0;
  std::int64_t top = 0;
  ImageSize size;
};

/// Rows and columns of a grid.
struct ImageGrid {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  friend bool operator==(ImageGrid, ImageGrid) = default;
};

struct ImagePlan {
  ImageSize source;  ///< size of the decoded image
  std::vector<ImageStage> stages;
  std::vector<ImageTile> tiles;         ///< in the encoder's order
  ImageGrid cut;                        ///< grid of tiles that the image is cut into; 0 x 0 if it is a single tile
  ImageGrid merged;                     ///< decoder rows of a tile; of fitted images, without the first tile
  std::int64_t encoder_rows = 0;        ///< patches and class rows of all tiles
  std::int64_t visual_rows = 0;         ///< rows that the decoder receives
  Modality modality = Modality::image;  ///< kind of the source; a sound's plan has only tiles and rows
};

}  // namespace maestro
