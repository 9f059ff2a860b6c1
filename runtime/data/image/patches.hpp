// SPDX-License-Identifier: Apache-2.0
// The division of a picture into patches: the geometry, and the pixels of each patch.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/data/image/image.hpp"

namespace maestro {

struct PatchSettings {
  std::int64_t patch = 8;              ///< pixels on a patch's side
  std::int64_t image_size = 64;        ///< longer side of every picture; 0: native size
  std::int64_t max_image_size = 1024;  ///< longer side of the largest native picture
};

struct PatchGrid {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  [[nodiscard]] std::int64_t patches() const { return rows * columns; }
  friend bool operator==(PatchGrid, PatchGrid) = default;
};

/// Grids of all the pictures of a corpus; zero where it has none.
struct PictureGrids {
  PatchGrid largest;         ///< the grid of most patches
  std::int64_t rows = 0;     ///< the most of any
  std::int64_t columns = 0;  ///< the most of any
  bool one_width = true;     ///< all have as many columns
  void add(const PatchGrid& grid);
};

/// Returns the patches of a picture of this size, at least 1 a side. The aspect is kept as well as whole patches allow:
/// with image_size the longer side becomes image_size and the shorter follows, each rounded to the nearest whole patch;
/// without it, each side is rounded to whole patches, after shrinking to max_image_size (rounded down to whole
/// patches). Depends on its arguments only, in integers: equal on every machine.
[[nodiscard]] PatchGrid patch_grid(ImageSize size, const PatchSettings& settings);

/// Writes the patches of a picture of whole patches, row by row: pixels (P, 3 x patch x patch) in (channel, row,
/// column) order as x / 127.5 - 1, and places (P, 3) = (number, row, column). The spans have exactly that many
/// elements.
void patchify(const Image& image, std::int64_t patch, std::int32_t number, std::span<float> pixels,
              std::span<std::int32_t> places);

}  // namespace maestro
