// SPDX-License-Identifier: Apache-2.0
#include "sections/vision/encoder_rows.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "runtime/core/result.hpp"

namespace maestro {

namespace {

using Places = std::span<const PatchPlace>;

Places places_of(const Tensor& places) {
  static_assert(sizeof(PatchPlace) == 3 * sizeof(std::int32_t));
  return {reinterpret_cast<const PatchPlace*>(places.data<std::int32_t>()), static_cast<std::size_t>(places.rows())};
}

/// Returns the offsets of a micro-batch's images, with the number of patches as the last: VE-1.
std::vector<std::int32_t> image_offsets(Places places, const SequenceLayout& samples) {
  std::vector<std::int32_t> offsets{0};
  for (std::size_t sample = 0; sample + 1 < samples.offsets.size(); ++sample) {
    const std::int32_t first = samples.offsets[sample], end = samples.offsets[sample + 1];
    for (std::int32_t patch = first; patch < end; ++patch) {
      const bool last = patch + 1 == end;
      if (last || places[static_cast<std::size_t>(patch) + 1].image != places[static_cast<std::size_t>(patch)].image) {
        offsets.push_back(patch + 1);
      }
    }
  }
  return offsets;
}

bool is_class_row(const PatchPlace& place) {
  return place.row == -1 && place.column == -1;
}

/// Returns an image's grid. Throws JobError with the prefix `where` for a negative place, except for class rows.
PatchGrid grid_of(Places image, bool class_row, const std::string& where) {
  PatchGrid grid;
  for (const PatchPlace& place : image) {
    if (class_row && is_class_row(place)) continue;
    if (place.row < 0 || place.column < 0) throw JobError(where + "has a patch at a negative row or column");
    grid.rows = std::max<std::int64_t>(grid.rows, place.row + 1);
    grid.columns = std::max<std::int64_t>(grid.columns, place.column + 1);
  }
  return grid;
}

/// Checks VE-4 for an image whose grid is the table's.
void check_rows(Places image, const VisionConfig& config, const std::string& where) {
  std::vector<bool> seen(static_cast<std::size_t>(config.max_patches) + 1);
  for (const PatchPlace& place : image) {
    const auto entry = is_class_row(place) ? config.max_patches : place.row * config.columns + place.column;
    if (seen[static_cast<std::size_t>(entry)]) {
      throw JobError(where + "has two rows for the place " + std::to_string(place.row) + ", " +
                     std::to_string(place.column));
    }
    seen[static_cast<std::size_t>(entry)] = true;
  }
  const auto rows = static_cast<std::size_t>(config.max_patches + (config.class_row ? 1 : 0));
  if (image.size() == rows) return;
  throw JobError(where + "has " + std::to_string(image.size()) + " rows, but the model takes " + std::to_string(rows) +
                 (config.class_row ? ", a class row among them" : ""));
}

/// Returns a row's entries in the first and the second table; `columns` are the table's or the image's.
std::pair<std::int32_t, std::int32_t> entries_of(const VisionConfig& config, const PatchPlace& place,
                                                 std::int64_t columns) {
  if (config.positions == PatchPositions::grid) return {place.row, place.column};
  const auto position = static_cast<std::int32_t>(place.row * columns + place.column);
  if (!config.class_row) return {position, 0};
  if (place.row < 0) return {0, 0};
  return {config.patch_bias ? 1 : -1, position + 1};
}

/// The entries of a side that a patch lies between, and the weight of the second.
struct Between {
  std::int64_t first, second;
  float share;
};

Between between(std::int32_t at, std::int64_t patches, std::int64_t entries) {
  if (patches == 1) return {0, 0, 0};
  const float source = static_cast<float>(at) * (static_cast<float>(entries - 1) / static_cast<float>(patches - 1));
  const auto first = std::min(static_cast<std::int64_t>(source), entries - 1);
  return {first, std::min(first + 1, entries - 1), source - static_cast<float>(first)};
}

/// Adds the entries of the patch in row `target`: ER-2.
void add_entries(const VisionConfig& config, const PatchPlace& place, const PatchGrid& grid, std::int32_t target,
                 WeightedRows& mix) {
  const Between down = between(place.row, grid.rows, config.max_patches / config.columns);
  const Between across = between(place.column, grid.columns, config.columns);
  const auto add = [&](std::int64_t row, std::int64_t column, float weight) {
    if (weight == 0) return;
    mix.sources.push_back(static_cast<std::int32_t>(row * config.columns + column));
    mix.weights.push_back(weight);
    mix.targets.push_back(target);
  };
  add(down.first, across.first, (1 - down.share) * (1 - across.share));
  add(down.first, across.second, (1 - down.share) * across.share);
  add(down.second, across.first, down.share * (1 - across.share));
  add(down.second, across.second, down.share * across.share);
}

/// Sorts the rows by window, and sets the windows' offsets: ER-1.
void arrange(Places places, std::int64_t side, EncoderRows& rows) {
  rows.order.resize(places.size());
  std::iota(rows.order.begin(), rows.order.end(), 0);
  const auto window = [&](std::int32_t row) {
    const PatchPlace& place = places[static_cast<std::size_t>(row)];
    return std::pair(place.row / side, place.column / side);
  };
  rows.window_offsets = {0};
  for (std::size_t image = 0; image + 1 < rows.offsets.size(); ++image) {
    const auto begin = rows.order.begin() + rows.offsets[image], end = rows.order.begin() + rows.offsets[image + 1];
    std::ranges::stable_sort(begin, end, {}, window);
    for (auto row = begin; row != end; ++row) {
      const bool last = row + 1 == end || window(row[1]) != window(*row);
      if (last) rows.window_offsets.push_back(static_cast<std::int32_t>(row - rows.order.begin()) + 1);
    }
  }
  rows.inverse.resize(places.size());
  for (std::size_t at = 0; at < rows.order.size(); ++at) {
    rows.inverse[static_cast<std::size_t>(rows.order[at])] = static_cast<std::int32_t>(at);
  }
}

void set_turns(Places places, EncoderRows& rows) {
  for (std::size_t at = 0; at < places.size(); ++at) {
    const PatchPlace& place = places[rows.order.empty() ? at : static_cast<std::size_t>(rows.order[at])];
    rows.turns.insert(rows.turns.end(), {place.row, place.column});
  }
}

}  // namespace

EncoderRows encoder_rows(const VisionConfig& config, const std::string& section, const Inputs& inputs) {
  const Places places = places_of(inputs.host("places"));
  const SequenceLayout& samples = inputs.layout(Axis::patches);
  EncoderRows rows;
  rows.offsets = image_offsets(places, samples);
  const auto windows = static_cast<std::size_t>(config.mels > 0 ? row_windows : 1);
  rows.first.resize(places.size() * windows);
  rows.second.resize(places.size());
  std::size_t sample = 0;
  for (std::size_t image = 0; image + 1 < rows.offsets.size(); ++image) {
    const auto begin = static_cast<std::size_t>(rows.offsets[image]);
    const auto end = static_cast<std::size_t>(rows.offsets[image + 1]);
    while (samples.offsets[sample + 1] <= rows.offsets[image]) ++sample;
    const std::string where = section + ": sample " + std::to_string(inputs.samples()[sample].value()) +
                              (config.mels > 0 ? ": sound " : ": image ") + std::to_string(places[begin].image) + " ";
    const Places own = places.subspan(begin, end - begin);
    const PatchGrid grid = grid_of(own, config.class_row, where);
    if (config.whole_tiles) check_whole_tile(config, grid, where + "has ");
    check_grid(config, grid, where + "has ");
    if (config.whole_tiles) check_rows(own, config, where);
    const std::int64_t columns = config.columns > 0 ? config.columns : grid.columns;
    for (std::size_t at = begin; at < end; ++at) {
      if (config.positions == PatchPositions::interpolated) {
        add_entries(config, places[at], grid, static_cast<std::int32_t>(at), rows.mix);
      } else if (config.mels > 0) {
        // Windows outside of a sound are the second convolution's padding, without the first one's bias.
        rows.first[at * windows] = places[at].row == 0 ? -1 : 0;
        rows.first[at * windows + windows - 1] = places[at].column == 0 ? 0 : -1;
        rows.second[at] = places[at].row;
      } else {
        std::tie(rows.first[at], rows.second[at]) = entries_of(config, places[at], columns);
      }
    }
  }
  if (config.window > 0) arrange(places, config.window, rows);
  if (config.rope_theta > 0) set_turns(places, rows);
  return rows;
}

}  // namespace maestro
