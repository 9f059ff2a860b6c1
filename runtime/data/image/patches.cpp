// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/image/patches.hpp"

#include <algorithm>

namespace maestro {

void PictureGrids::add(const PatchGrid& grid) {
  one_width = one_width && (columns == 0 || columns == grid.columns);
  if (grid.patches() > largest.patches()) largest = grid;
  rows = std::max(rows, grid.rows);
  columns = std::max(columns, grid.columns);
}

void PictureGrids::merge(const PictureGrids& others) {
  one_width = one_width && others.one_width && (columns == 0 || others.columns == 0 || columns == others.columns);
  if (others.largest.patches() > largest.patches()) largest = others.largest;
  rows = std::max(rows, others.rows);
  columns = std::max(columns, others.columns);
}

}  // namespace maestro
