// SPDX-License-Identifier: Apache-2.0
// The decoder rows of a fitted image as weighted sums of encoder rows (LLaVA-OneVision).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "runtime/images/image_plan.hpp"
#include "runtime/images/image_settings.hpp"

namespace maestro {

inline constexpr std::size_t mixed_terms = 4;    ///< sources of a decoder row at most
inline constexpr std::int32_t newline_row = -1;  ///< source: the learned row that ends a row of the image

/// A decoder row: the sum of encoder rows, counted from the image's first, by their weights; unused weights are 0.
struct MixedRow {
  std::array<std::int32_t, mixed_terms> sources{};
  std::array<float, mixed_terms> weights{};
};

/// Returns the decoder rows of an image: the complete first tile, then rows from the covered part of the canvas, shrunk
/// to `plan.merged` by bilinear interpolation, each with a newline row at its end. An image that is not cut is
/// one tile and a newline row. `tile` is the grid of a tile. The arithmetic equals transformers' LlavaOnevisionModel.
[[nodiscard]] std::vector<MixedRow> mixed_rows(const ImagePlan& plan, ImageGrid tile);

/// Returns whether images with these settings have mixed_rows().
[[nodiscard]] inline bool mixes_rows(const ImageSettings& settings) {
  return std::holds_alternative<FittedTiles>(settings.geometry);
}
/// Returns the grid of patches in a tile of the plan.
[[nodiscard]] inline ImageGrid tile_patches(const ImagePlan& plan, const EncoderGrid& encoder) {
  const ImageSize tile = plan.tiles.front().size;
  return {tile.height / encoder.patch, tile.width / encoder.patch};
}
/// Writes the rows' terms, (rows, 4) each; sources count from `first` rows before the image's.
void write_mix(std::span<const MixedRow> rows, std::int64_t first, std::span<std::int32_t> sources,
               std::span<float> weights);

}  // namespace maestro
