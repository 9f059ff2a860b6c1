// SPDX-License-Identifier: Apache-2.0
#include "runtime/images/image_plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/images/image_settings.hpp"

namespace maestro {

namespace {

double ratio(std::int64_t above, std::int64_t below) {
  return static_cast<double>(above) / static_cast<double>(below);
}

double times(std::int64_t side, double factor) {
  return static_cast<double>(side) * factor;
}

std::int64_t whole(double value) {
  return static_cast<std::int64_t>(value);
}

/// Returns the least multiple of `unit` that is not below `side`.
std::int64_t multiple(std::int64_t side, std::int64_t unit) {
  return (side + unit - 1) / unit * unit;
}

std::int64_t area(ImageSize size) {
  return size.width * size.height;
}

std::size_t add_resize(ImagePlan& plan, std::size_t from, ImageSize to) {
  plan.stages.push_back({from, to, to});
  return plan.stages.size();
}

void add_whole(ImagePlan& plan, std::size_t from) {
  plan.tiles.push_back({from, 0, 0, plan.stages[from - 1].canvas});
}

/// Cuts the result of a stage into tiles, row by row.
void add_cut(ImagePlan& plan, std::size_t from, ImageSize tile) {
  const ImageSize whole = plan.stages[from - 1].canvas;
  plan.cut = {whole.height / tile.height, whole.width / tile.width};
  for (std::int64_t row = 0; row < plan.cut.rows; ++row) {
    for (std::int64_t column = 0; column < plan.cut.columns; ++column) {
      plan.tiles.push_back({from, column * tile.width, row * tile.height, tile});
    }
  }
}

/// Pads the shorter side of the decoded image with a colour, so that the image is in the middle.
std::size_t add_square(ImagePlan& plan, Colour colour) {
  const ImageSize size = plan.source;
  const std::int64_t side = std::max(size.width, size.height);
  plan.stages.push_back({0, size, {side, side}, (side - size.width) / 2, (side - size.height) / 2, colour});
  return plan.stages.size();
}

ImageSize with_shortest_edge(ImageSize size, std::int64_t edge) {
  const auto longer = [&](std::int64_t side, std::int64_t shorter) { return whole(ratio(edge * side, shorter)); };
  if (size.width <= size.height) return {edge, longer(size.height, size.width)};
  return {longer(size.width, size.height), edge};
}

void plan_square(const SquareTile& square, Colour colour, ImagePlan& plan) {
  const bool padded = square.pad && plan.source.width != plan.source.height;
  const std::size_t from = padded ? add_square(plan, colour) : 0;
  const ImageSize size = padded ? plan.stages.back().canvas : plan.source;
  const ImageSize to = square.shortest_edge > 0 ? with_shortest_edge(size, square.shortest_edge) : square.size;
  ImageStage stage{from, to, square.size};
  stage.left = -((to.width - square.size.width) / 2);
  stage.top = -((to.height - square.size.height) / 2);
  plan.stages.push_back(stage);
  add_whole(plan, plan.stages.size());
}

/// Returns the canvas on which most pixels of the image are kept, and of these the one with the least rest.
ImageSize best_canvas(const FittedTiles& fitted, ImageSize size) {
  ImageSize best;
  std::int64_t most_kept = 0, least_rest = std::numeric_limits<std::int64_t>::max();
  for (const ImageSize canvas : fitted.canvases) {
    const double scale = std::min(ratio(canvas.width, size.width), ratio(canvas.height, size.height));
    const std::int64_t scaled = whole(times(size.width, scale)) * whole(times(size.height, scale));
    const std::int64_t kept = std::min(scaled, area(size));
    const std::int64_t rest = area(canvas) - kept;
    if (kept > most_kept || (kept == most_kept && rest < least_rest)) {
      best = canvas;
      most_kept = kept;
      least_rest = rest;
    }
  }
  return best;
}

/// Returns the largest size with the image's aspect on the canvas.
ImageSize fit(ImageSize size, ImageSize canvas) {
  const double across = ratio(canvas.width, size.width), down = ratio(canvas.height, size.height);
  const auto up = [](std::int64_t side, double scale, std::int64_t most) {
    return std::min(whole(std::ceil(times(side, scale))), most);
  };
  if (across < down) return {canvas.width, up(size.height, across, canvas.height)};
  return {up(size.width, down, canvas.width), canvas.height};
}

void plan_fitted(const FittedTiles& fitted, Colour colour, std::int64_t images, ImagePlan& plan) {
  const ImageSize tile{fitted.side, fitted.side};
  if (images > 1) {
    add_whole(plan, add_resize(plan, add_square(plan, colour), tile));
    return;
  }
  const ImageSize canvas = best_canvas(fitted, plan.source);
  const ImageSize size = fit(plan.source, canvas);
  plan.stages.push_back({0, size, canvas, (canvas.width - size.width) / 2, (canvas.height - size.height) / 2});
  add_whole(plan, add_resize(plan, 0, tile));
  add_cut(plan, 1, tile);
}

/// Returns the size with this longer side; the shorter side becomes even.
ImageSize with_longest_edge(ImageSize size, std::int64_t edge) {
  const double aspect = ratio(size.width, size.height);
  const auto even = [](double side) { return std::max<std::int64_t>(1, whole(side) + whole(side) % 2); };
  if (size.width >= size.height) return {edge, even(static_cast<double>(edge) / aspect)};
  return {even(times(edge, aspect)), edge};
}

ImageSize at_most(ImageSize size, std::int64_t edge) {
  if (std::max(size.width, size.height) <= edge) return size;
  const double aspect = ratio(size.width, size.height);
  const auto side = [](double value) { return std::max<std::int64_t>(1, whole(value)); };
  if (size.width >= size.height) return {edge, side(static_cast<double>(edge) / aspect)};
  return {side(times(edge, aspect)), edge};
}

ImageSize to_multiples(ImageSize size, std::int64_t unit) {
  const double aspect = ratio(size.width, size.height);
  if (size.width >= size.height) {
    const std::int64_t width = multiple(size.width, unit);
    return {width, multiple(whole(static_cast<double>(width) / aspect), unit)};
  }
  const std::int64_t height = multiple(size.height, unit);
  return {multiple(whole(times(height, aspect)), unit), height};
}

void plan_filled(const FilledTiles& filled, ImagePlan& plan) {
  constexpr std::int64_t longest_side = 4096;
  const ImageSize tile{filled.side, filled.side};
  const ImageSize size = at_most(with_longest_edge(plan.source, filled.longest_edge), longest_side);
  const std::size_t first = add_resize(plan, 0, size);
  if (!filled.split) {
    add_whole(plan, add_resize(plan, first, tile));
    return;
  }
  const ImageSize grid = to_multiples(size, filled.side);
  const std::size_t second = add_resize(plan, first, grid);
  if (grid != tile) add_cut(plan, second, tile);
  add_whole(plan, grid == tile ? second : add_resize(plan, second, tile));
}

/// Returns the grids of allowed numbers of tiles, fewer tiles first, then fewer columns.
std::vector<ImageGrid> grids_of(const AspectTiles& tiles) {
  std::vector<ImageGrid> grids;
  for (std::int64_t columns = 1; columns <= tiles.most; ++columns) {
    for (std::int64_t rows = 1; rows * columns <= tiles.most; ++rows) {
      if (rows * columns >= tiles.fewest) grids.push_back({rows, columns});
    }
  }
  std::ranges::stable_sort(grids, {}, [](ImageGrid grid) { return grid.rows * grid.columns; });
  return grids;
}

ImageGrid best_grid(const AspectTiles& tiles, ImageSize size) {
  const double aspect = ratio(size.width, size.height);
  double least = std::numeric_limits<double>::infinity();
  ImageGrid best{1, 1};
  for (const ImageGrid grid : grids_of(tiles)) {
    const double off = std::abs(aspect - ratio(grid.columns, grid.rows));
    const double half = 0.5 * static_cast<double>(area(tiles.tile) * grid.columns * grid.rows);
    if (off < least || (off == least && static_cast<double>(area(size)) > half)) best = grid;
    least = std::min(least, off);
  }
  return best;
}

void plan_aspect(const AspectTiles& tiles, ImagePlan& plan) {
  const ImageGrid grid = tiles.most > 1 ? best_grid(tiles, plan.source) : ImageGrid{1, 1};
  const ImageSize to{grid.columns * tiles.tile.width, grid.rows * tiles.tile.height};
  const std::size_t stretched = add_resize(plan, 0, to);
  if (to != tiles.tile) add_cut(plan, stretched, tiles.tile);
  add_whole(plan, to == tiles.tile ? stretched : add_resize(plan, 0, tiles.tile));
}

/// Returns the size nearest to the image's whose sides are multiples of a factor; halves go to the even multiple.
ImageSize native_size(const NativeTile& native, ImageSize size) {
  const std::int64_t factor = native.patch * native.merge;
  const double unit = static_cast<double>(factor);
  const auto nearest = [&](std::int64_t side) { return whole(std::nearbyint(ratio(side, factor))) * factor; };
  const ImageSize to{nearest(size.width), nearest(size.height)};
  if (area(to) > native.largest_area) {
    const double shrink = std::sqrt(ratio(area(size), native.largest_area));
    const auto side = [&](std::int64_t from) {
      return std::max(factor, whole(std::floor(static_cast<double>(from) / shrink / unit)) * factor);
    };
    return {side(size.width), side(size.height)};
  }
  if (area(to) >= native.smallest_area) return to;
  const double grow = std::sqrt(ratio(native.smallest_area, area(size)));
  const auto side = [&](std::int64_t from) { return whole(std::ceil(times(from, grow) / unit)) * factor; };
  return {side(size.width), side(size.height)};
}

void plan_native(const NativeTile& native, ImagePlan& plan) {
  add_whole(plan, add_resize(plan, 0, native_size(native, plan.source)));
}

/// Returns the multiple of the patch nearest to side * wanted / longer, at least one patch.
std::int64_t scaled_side(std::int64_t side, std::int64_t wanted, std::int64_t longer, std::int64_t patch) {
  const std::int64_t unit = longer * patch;
  return std::max<std::int64_t>(1, (2 * side * wanted + unit) / (2 * unit)) * patch;
}

/// Integer arithmetic: equal on every machine.
void plan_scaled(const ScaledTile& scaled, ImagePlan& plan) {
  const ImageSize from = plan.source;
  const std::int64_t longer = std::max(from.width, from.height);
  const bool native = scaled.image_size == 0;
  const std::int64_t wanted = native ? std::min(longer, scaled.max_image_size) : scaled.image_size;
  ImageSize to{scaled_side(from.width, wanted, longer, scaled.patch),
               scaled_side(from.height, wanted, longer, scaled.patch)};
  if (native) {
    const std::int64_t most = std::max<std::int64_t>(1, scaled.max_image_size / scaled.patch) * scaled.patch;
    to = {std::min(to.width, most), std::min(to.height, most)};
  }
  add_whole(plan, add_resize(plan, 0, to));
}

std::string text(ImageSize size) {
  return std::to_string(size.width) + " x " + std::to_string(size.height);
}

Status check_stages(const ImagePlan& plan) {
  for (const ImageStage& stage : plan.stages) {
    for (const ImageSize size : {stage.resized, stage.canvas}) {
      const bool small = size.width < 1 || size.height < 1;
      if (!small && area(size) <= largest_image_pixels) continue;
      return Error{ErrorCode::invalid_argument,
                   "an image of " + text(plan.source) + " pixels is too narrow: it would be resized to " + text(size) +
                       (small ? "" : ", more than " + std::to_string(largest_image_pixels) + " pixels in all")};
    }
  }
  return {};
}

/// Refuses images that the library refuses.
Status check_aspect(const ImageSettings& settings, ImageSize size) {
  constexpr double largest_aspect = 200;
  const bool native = std::holds_alternative<NativeTile>(settings.geometry);
  const double aspect = ratio(std::max(size.width, size.height), std::min(size.width, size.height));
  if (!native || aspect <= largest_aspect) return {};
  return Error{ErrorCode::invalid_argument,
               "an image of " + text(size) + " pixels is too narrow: one side is more than 200 times the other"};
}

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace

Colour mean_colour(const ImageSettings& settings) {
  Colour colour{};
  std::ranges::transform(settings.mean, colour.begin(),
                         [](double mean) { return static_cast<std::uint8_t>(mean * 255); });
  return colour;
}

Result<ImagePlan> plan_tiles(const ImageSettings& settings, ImageSize size, std::int64_t images_in_sample) {
  if (Status ok = check_aspect(settings, size); !ok) return ok.error();
  ImagePlan plan;
  plan.source = size;
  const Colour mean = mean_colour(settings);
  std::visit(Overloaded{[&](const SquareTile& square) { plan_square(square, mean, plan); },
                        [&](const FittedTiles& fitted) { plan_fitted(fitted, mean, images_in_sample, plan); },
                        [&](const FilledTiles& filled) { plan_filled(filled, plan); },
                        [&](const AspectTiles& tiles) { plan_aspect(tiles, plan); },
                        [&](const NativeTile& native) { plan_native(native, plan); },
                        [&](const ScaledTile& scaled) { plan_scaled(scaled, plan); }},
             settings.geometry);
  if (Status ok = check_stages(plan); !ok) return ok.error();
  return plan;
}

}  // namespace maestro
