// SPDX-License-Identifier: Apache-2.0
// The division of an image into patches: the geometry, and the pixels of each patch.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/images/image.hpp"

namespace maestro {

struct PatchSettings {
  std::int64_t patch = 8;              ///< side of a patch in pixels
  std::int64_t image_size = 64;        ///< longer side of every image; 0: native size
  std::int64_t max_image_size = 1024;  ///< longest side at native size; larger images are shrunk to it
};

struct PatchGrid {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  [[nodiscard]] std::int64_t patches() const { return rows * columns; }
  friend bool operator==(PatchGrid, PatchGrid) = default;
};

/// Grids of all images in a corpus; zero without images.
struct PictureGrids {
  PatchGrid largest;         ///< grid with the most patches
  std::int64_t rows = 0;     ///< most rows of any grid
  std::int64_t columns = 0;  ///< most columns of any grid
  bool one_width = true;     ///< true: all grids have equally many columns
  void add(const PatchGrid& grid);
  void merge(const PictureGrids& others);
};

/// Returns the grid of an image of this size, at least 1 patch a side. The aspect is kept as well as patches allow:
/// with image_size the longer side becomes image_size and the shorter side scales with it, each rounded to the nearest
/// multiple of the patch; without it, the image is shrunk to max_image_size if it is larger, and each side is rounded
/// in the same way, but not above max_image_size. Integer arithmetic: equal on every machine.
[[nodiscard]] PatchGrid patch_grid(ImageSize size, const PatchSettings& settings);

/// Writes the patches of an image, row by row: pixels (P, 3 x patch x patch) in (channel, row, column) order as
/// x / 127.5 - 1, and places (P, 3) = (number, row, column). Throws std::invalid_argument if the sides are not
/// multiples of `patch` or the spans have another size.
void patchify(const Image& image, std::int64_t patch, std::int32_t number, std::span<float> pixels,
              std::span<std::int32_t> places);

}  // namespace maestro
