// SPDX-License-Identifier: Apache-2.0
#include "runtime/images/fitted_rows.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace maestro {

namespace {

/// Returns the integer part of a value, rounded to seven decimals.
std::int64_t whole_of_rounded(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.7f", value);
  return static_cast<std::int64_t>(std::strtod(text, nullptr));
}

/// Python's value // divisor for positive numbers: it differs from floor(value / divisor) next to integers.
std::int64_t floor_divide(double value, double divisor) {
  const double quotient = (value - std::fmod(value, divisor)) / divisor;
  const double floor = std::floor(quotient);
  return static_cast<std::int64_t>(quotient - floor > 0.5 ? floor + 1 : floor);
}

/// Returns the rows, or columns, that are left without the padding at both ends.
std::int64_t unpadded(std::int64_t all, std::int64_t side, std::int64_t across, std::int64_t side_across) {
  const double scale = static_cast<double>(across) / static_cast<double>(side_across);
  const std::int64_t covered = whole_of_rounded(static_cast<double>(side) * scale);
  return all - (all - covered) / 2 * 2;
}

}  // namespace

ImageGrid covered_grid(ImageSize image, ImageGrid grid) {
  const double aspect = static_cast<double>(image.width) / static_cast<double>(image.height);
  const double canvas = static_cast<double>(grid.columns) / static_cast<double>(grid.rows);
  if (aspect > canvas) {
    grid.rows = unpadded(grid.rows, image.height, grid.columns, image.width);
  } else {
    grid.columns = unpadded(grid.columns, image.width, grid.rows, image.height);
  }
  return grid;
}

ImageGrid fitted_grid(ImageSize image, ImageGrid grid, std::int64_t most) {
  grid = covered_grid(image, grid);
  const double excess = std::sqrt(static_cast<double>(grid.rows * grid.columns) / static_cast<double>(most));
  if (!(excess > 1.1)) return grid;
  return {floor_divide(static_cast<double>(grid.rows), excess),
          floor_divide(static_cast<double>(grid.columns), excess)};
}

}  // namespace maestro
