// SPDX-License-Identifier: Apache-2.0
#include "runtime/images/mixed_rows.hpp"

#include <algorithm>

#include "runtime/images/fitted_rows.hpp"

namespace maestro {

namespace {

/// The two neighbours of a point along an axis, and the weight of the second.
struct Taps {
  std::int64_t first = 0, second = 0;
  float share = 0;
};

/// Returns the taps of target `at` for bilinear interpolation from `from` to `to` points, as torch's with align_corners
/// false.
Taps taps_of(std::int64_t at, std::int64_t from, std::int64_t to) {
  if (from == to) return {at, at, 0};
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  const float source = std::max(0.0F, scale * (static_cast<float>(at) + 0.5F) - 0.5F);
  const auto first = static_cast<std::int64_t>(source);
  return {first, std::min(first + 1, from - 1), source - static_cast<float>(first)};
}

MixedRow single(std::int64_t source) {
  MixedRow row;
  row.sources[0] = static_cast<std::int32_t>(source);
  row.weights[0] = 1;
  return row;
}

}  // namespace

std::vector<MixedRow> mixed_rows(const ImagePlan& plan, ImageGrid tile) {
  const std::int64_t of_tile = tile.rows * tile.columns;
  std::vector<MixedRow> rows;
  for (std::int64_t row = 0; row < of_tile; ++row) rows.push_back(single(row));
  if (plan.cut.rows == 0) {
    rows.push_back(single(newline_row));
    return rows;
  }
  const ImageGrid canvas{plan.cut.rows * tile.rows, plan.cut.columns * tile.columns};
  const ImageGrid covered = covered_grid(plan.source, canvas);
  const std::int64_t top = (canvas.rows - covered.rows) / 2, left = (canvas.columns - covered.columns) / 2;
  const auto source = [&](std::int64_t row, std::int64_t column) {
    row += top;
    column += left;
    const std::int64_t number = 1 + row / tile.rows * plan.cut.columns + column / tile.columns;
    return static_cast<std::int32_t>(number * of_tile + row % tile.rows * tile.columns + column % tile.columns);
  };
  for (std::int64_t row = 0; row < plan.merged.rows; ++row) {
    const Taps down = taps_of(row, covered.rows, plan.merged.rows);
    for (std::int64_t column = 0; column < plan.merged.columns; ++column) {
      const Taps across = taps_of(column, covered.columns, plan.merged.columns);
      rows.push_back({{source(down.first, across.first), source(down.first, across.second),
                       source(down.second, across.first), source(down.second, across.second)},
                      {(1 - down.share) * (1 - across.share), (1 - down.share) * across.share,
                       down.share * (1 - across.share), down.share * across.share}});
    }
    rows.push_back(single(newline_row));
  }
  return rows;
}

void write_mix(std::span<const MixedRow> rows, std::int64_t first, std::span<std::int32_t> sources,
               std::span<float> weights) {
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (std::size_t term = 0; term < mixed_terms; ++term) {
      const std::int32_t source = rows[row].sources[term];
      sources[row * mixed_terms + term] = source == newline_row ? source : source + static_cast<std::int32_t>(first);
      weights[row * mixed_terms + term] = rows[row].weights[term];
    }
  }
}

}  // namespace maestro
