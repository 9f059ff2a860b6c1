// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/image/patches.hpp"

#include <algorithm>
#include <stdexcept>

namespace maestro {

namespace {

/// Returns the number of patches nearest to side * wanted / longer pixels, at least 1.
std::int64_t whole_patches(std::int64_t side, std::int64_t wanted, std::int64_t longer, std::int64_t patch) {
  const std::int64_t unit = longer * patch;
  return std::max<std::int64_t>(1, (2 * side * wanted + unit) / (2 * unit));
}

/// Writes the pixels of a patch, (3, patch, patch), and returns the position after them.
float* write_patch(const Image& image, std::int64_t patch, std::int64_t top, std::int64_t left, float* to) {
  for (std::int64_t channel = 0; channel < 3; ++channel) {
    for (std::int64_t row = 0; row < patch; ++row) {
      const std::uint8_t* from = image.pixels.data() + ((top + row) * image.width + left) * 3 + channel;
      for (std::int64_t column = 0; column < patch; ++column, from += 3) {
        *to++ = static_cast<float>(*from) / 127.5f - 1.0f;
      }
    }
  }
  return to;
}

}  // namespace

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

PatchGrid patch_grid(ImageSize size, const PatchSettings& settings) {
  const std::int64_t longer = std::max(size.width, size.height);
  const std::int64_t wanted = settings.image_size > 0 ? settings.image_size : std::min(longer, settings.max_image_size);
  PatchGrid grid{whole_patches(size.height, wanted, longer, settings.patch),
                 whole_patches(size.width, wanted, longer, settings.patch)};
  if (settings.image_size > 0) return grid;
  const std::int64_t most = std::max<std::int64_t>(1, settings.max_image_size / settings.patch);
  return {std::min(grid.rows, most), std::min(grid.columns, most)};
}

void patchify(const Image& image, std::int64_t patch, std::int32_t number, std::span<float> pixels,
              std::span<std::int32_t> places) {
  const PatchGrid grid{image.height / patch, image.width / patch};
  if (grid.rows * patch != image.height || grid.columns * patch != image.width ||
      std::ssize(pixels) != grid.patches() * 3 * patch * patch || std::ssize(places) != grid.patches() * 3) {
    throw std::invalid_argument("an image of " + std::to_string(image.width) + " x " + std::to_string(image.height) +
                                " pixels does not fill " + std::to_string(places.size() / 3) + " patches of " +
                                std::to_string(patch));
  }
  float* to = pixels.data();
  std::int32_t* place = places.data();
  for (std::int64_t row = 0; row < grid.rows; ++row) {
    for (std::int64_t column = 0; column < grid.columns; ++column) {
      to = write_patch(image, patch, row * patch, column * patch, to);
      *place++ = number;
      *place++ = static_cast<std::int32_t>(row);
      *place++ = static_cast<std::int32_t>(column);
    }
  }
}

}  // namespace maestro
