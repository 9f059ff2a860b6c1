// SPDX-License-Identifier: Apache-2.0
// Grids of the patches of images.
#pragma once

#include <cstdint>

namespace maestro {

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

}  // namespace maestro
