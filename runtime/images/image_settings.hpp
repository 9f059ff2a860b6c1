// SPDX-License-Identifier: Apache-2.0
// Settings for the images of a model: geometries that divide them into tiles, the filter, the scale of values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/images/image_plan.hpp"
#include "runtime/images/resampler.hpp"

namespace maestro {

/// One tile of a fixed size.
struct SquareTile {
  bool pad = false;                ///< first pads the shorter side with the mean colour
  std::int64_t shortest_edge = 0;  ///< resizes to this shorter side, keeping the aspect; 0: resizes to `size`
  ImageSize size;                  ///< size of the tile; with shortest_edge, its middle is cut out
};

/// Keeps the aspect and pads with black to one of the canvases, which is cut into squares after a first tile with the
/// whole image. If a sample has several images, each is padded to a square and becomes one tile.
struct FittedTiles {
  std::int64_t side = 0;            ///< side of a tile, pixels
  std::vector<ImageSize> canvases;  ///< multiples of `side`
};

/// Stretches the image to a grid of tiles and cuts it; the last tile is the uncut image.
struct FilledTiles {
  std::int64_t longest_edge = 0;  ///< resizes to this longer side before the next multiples of a tile are filled
  std::int64_t side = 0;          ///< side of a tile, pixels
  bool split = true;              ///< false: one tile
};

/// Fills the grid of tiles whose aspect is nearest to the image's, as FilledTiles.
struct AspectTiles {
  ImageSize tile;
  std::int64_t fewest = 1;
  std::int64_t most = 12;
};

/// One tile with sides that are multiples of patch * merge, and an area within limits.
struct NativeTile {
  std::int64_t patch = 14;
  std::int64_t merge = 2;
  std::int64_t smallest_area = 0;  ///< pixels
  std::int64_t largest_area = 0;   ///< pixels
};

/// One tile, of a model without a processor, that keeps the aspect as well as patches allow. With image_size the longer
/// side becomes image_size and the shorter side scales with it, each rounded to the nearest multiple of the patch, at
/// least one patch. Without it, an image larger than max_image_size is shrunk to it, and each side is rounded in the
/// same way, but not above max_image_size.
struct ScaledTile {
  std::int64_t patch = 8;              ///< side of a patch, pixels
  std::int64_t image_size = 64;        ///< longer side of every image, a multiple of `patch`; 0: native size
  std::int64_t max_image_size = 1024;  ///< longest side at native size
  friend bool operator==(const ScaledTile&, const ScaledTile&) = default;
};

using TileGeometry = std::variant<SquareTile, FittedTiles, FilledTiles, AspectTiles, NativeTile, ScaledTile>;

struct ImageSettings {
  std::string origin;  ///< file, for messages
  TileGeometry geometry;
  ResampleFilter filter = ResampleFilter::bicubic;
  PassOrder order = PassOrder::pillow13;
  std::optional<double> scale = 1.0 / 255;  ///< factor of a value from 0 to 255; nothing: 1
  bool normalize = true;                    ///< subtracts `mean` and divides by `deviation`
  std::array<double, 3> mean{};
  std::array<double, 3> deviation{1, 1, 1};
  std::optional<std::int64_t> visual_rows;  ///< decoder rows of an image, if the file states them
};

/// How a model turns tiles into rows.
struct EncoderGrid {
  std::int64_t patch = 14;       ///< side of a patch, pixels
  std::int64_t merge = 1;        ///< patches along each side that a decoder row joins
  bool class_row = false;        ///< the encoder has a row that stands for a tile
  bool keeps_class_row = false;  ///< the decoder receives this row, too
  std::int64_t most_tiles = 9;   ///< fitted images with more rows than these tiles have are shrunk ("anyres_max_9")
};

/// Plans an image's way to tiles, in the library's arithmetic: integers, and doubles in its order of operations. Only
/// stages, tiles and `cut` are set. Errors (invalid_argument) state only the reason: the image is too narrow for this
/// geometry, or would become too large.
[[nodiscard]] Result<ImagePlan> plan_tiles(const ImageSettings& settings, ImageSize size,
                                           std::int64_t images_in_sample);

/// Returns trunc(255 x mean): the colour of padding.
[[nodiscard]] Colour mean_colour(const ImageSettings& settings);

}  // namespace maestro
