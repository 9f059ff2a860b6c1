// SPDX-License-Identifier: Apache-2.0
#include "runtime/images/image_processor.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "runtime/files/checksum.hpp"
#include "runtime/images/fitted_rows.hpp"
#include "runtime/images/mixed_rows.hpp"

namespace maestro {

namespace {

std::string in_pixels(ImageSize size) {
  return std::to_string(size.width) + " x " + std::to_string(size.height);
}

/// Returns the size of every tile; nothing if it depends on the image.
std::optional<ImageSize> tile_size(const TileGeometry& geometry) {
  if (const auto* square = std::get_if<SquareTile>(&geometry)) return square->size;
  if (const auto* fitted = std::get_if<FittedTiles>(&geometry)) return ImageSize{fitted->side, fitted->side};
  if (const auto* filled = std::get_if<FilledTiles>(&geometry)) return ImageSize{filled->side, filled->side};
  if (const auto* tiles = std::get_if<AspectTiles>(&geometry)) return tiles->tile;
  return std::nullopt;
}

/// Returns the float of each byte: scaled in double, normalised in float.
std::array<float, 256> values_of(const ImageSettings& settings, std::size_t channel) {
  std::array<float, 256> values{};
  for (std::size_t byte = 0; byte < values.size(); ++byte) {
    auto value = static_cast<float>(static_cast<double>(byte) * settings.scale.value_or(1.0));
    if (settings.normalize) {
      value -= static_cast<float>(settings.mean[channel]);
      value /= static_cast<float>(settings.deviation[channel]);
    }
    values[byte] = value;
  }
  return values;
}

/// Returns the part of an image in a rectangle; pixels outside of the image have a colour.
Image part_of(const Image& image, const ImageStage& place) {
  Image out{place.canvas.width, place.canvas.height, {}};
  out.pixels.resize(static_cast<std::size_t>(out.width * out.height) * 3);
  for (std::size_t at = 0; at < out.pixels.size(); ++at) out.pixels[at] = place.colour[at % 3];
  const std::int64_t left = std::max<std::int64_t>(0, place.left), top = std::max<std::int64_t>(0, place.top);
  const std::int64_t columns = std::min(out.width, place.left + image.width) - left;
  for (std::int64_t row = top; columns > 0 && row < std::min(out.height, place.top + image.height); ++row) {
    const std::uint8_t* from = image.pixels.data() + ((row - place.top) * image.width + left - place.left) * 3;
    std::copy_n(from, columns * 3, out.pixels.data() + (row * out.width + left) * 3);
  }
  return out;
}

Image part_of(const Image& image, const ImageTile& tile) {
  return part_of(image, ImageStage{0, image.size(), tile.size, -tile.left, -tile.top});
}

Image run(const Resampler& resampler, const Image& from, const ImageStage& stage) {
  if (stage.canvas == stage.resized && stage.left == 0 && stage.top == 0) return resampler.resize(from, stage.resized);
  return part_of(resampler.resize(from, stage.resized), stage);
}

std::string text_of(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::hex).ptr};
}

std::string text_of(ImageSize size) {
  return in_pixels(size);
}
std::string text_of(std::int64_t value) {
  return std::to_string(value);
}

template <class... Values>
std::string listed(const char* name, const Values&... values) {
  std::string text = name;
  ((text += " " + text_of(values)), ...);
  return text + "\n";
}

std::string text_of(const TileGeometry& geometry) {
  if (const auto* square = std::get_if<SquareTile>(&geometry)) {
    return listed("square", std::int64_t{square->pad}, square->shortest_edge, square->size);
  }
  if (const auto* filled = std::get_if<FilledTiles>(&geometry)) {
    return listed("filled", filled->longest_edge, filled->side, std::int64_t{filled->split});
  }
  if (const auto* tiles = std::get_if<AspectTiles>(&geometry)) {
    return listed("aspect", tiles->tile, tiles->fewest, tiles->most);
  }
  if (const auto* native = std::get_if<NativeTile>(&geometry)) {
    return listed("native", native->patch, native->merge, native->smallest_area, native->largest_area);
  }
  if (const auto* scaled = std::get_if<ScaledTile>(&geometry)) {
    return listed("scaled", scaled->patch, scaled->image_size, scaled->max_image_size);
  }
  const auto& fitted = std::get<FittedTiles>(geometry);
  std::string text = listed("fitted", fitted.side);
  for (const ImageSize canvas : fitted.canvases) text += listed("canvas", canvas);
  return text;
}

/// Writes the pixels of a patch, (3, patch, patch), and returns the position after them.
float* write_patch(const Image& tile, std::int64_t patch, ImageGrid at,
                   const std::array<std::array<float, 256>, 3>& values, float* to) {
  for (std::size_t channel = 0; channel < 3; ++channel) {
    for (std::int64_t row = at.rows * patch; row < (at.rows + 1) * patch; ++row) {
      const std::uint8_t* from = tile.pixels.data() + (row * tile.width + at.columns * patch) * 3 + channel;
      for (std::int64_t column = 0; column < patch; ++column, from += 3) *to++ = values[channel][*from];
    }
  }
  return to;
}

std::string text_of_blocks(const EncoderGrid& encoder) {
  const std::string merge = std::to_string(encoder.merge);
  return "blocks of " + merge + " x " + merge + " patches of " + std::to_string(encoder.patch);
}

/// Returns why an encoder cannot receive tiles of this size; nothing if it can.
std::string fault_of_tile(const ImageSettings& settings, const EncoderGrid& encoder, ImageSize tile) {
  const std::int64_t rows = tile.height / encoder.patch, columns = tile.width / encoder.patch;
  if (rows < 1 || columns < 1 || rows % encoder.merge != 0 || columns % encoder.merge != 0) {
    return "tiles of " + in_pixels(tile) + " pixels do not divide into " + text_of_blocks(encoder);
  }
  const std::int64_t visual = rows * columns / (encoder.merge * encoder.merge) + encoder.keeps_class_row;
  if (!settings.visual_rows || *settings.visual_rows == visual) return {};
  return "image_seq_length = " + std::to_string(*settings.visual_rows) + ", but the model makes " +
         std::to_string(visual) + " rows of a tile of " + in_pixels(tile) + " pixels";
}

std::string fault_of(const ImageSettings& settings, const EncoderGrid& encoder) {
  if (encoder.patch < 1 || encoder.merge < 1 || encoder.most_tiles < 1) return "the encoder's patches are empty";
  if (encoder.keeps_class_row && !encoder.class_row) return "the decoder receives a class row that the encoder lacks";
  if (encoder.keeps_class_row && std::holds_alternative<FittedTiles>(settings.geometry)) {
    return "class rows of fitted tiles are not supported";
  }
  if (const auto tile = tile_size(settings.geometry)) return fault_of_tile(settings, encoder, *tile);
  if (const auto* scaled = std::get_if<ScaledTile>(&settings.geometry)) {
    if (scaled->patch == encoder.patch && encoder.merge == 1) return {};
    return "patch = " + std::to_string(scaled->patch) + " differs from the model's " + text_of_blocks(encoder);
  }
  const auto& native = std::get<NativeTile>(settings.geometry);
  if (native.patch == encoder.patch && native.merge == encoder.merge) return {};
  return "patch_size = " + std::to_string(native.patch) + " and merge_size = " + std::to_string(native.merge) +
         " differ from the model's " + text_of_blocks(encoder);
}

/// Throws JobError if settings and encoder disagree.
void check(const ImageSettings& settings, const EncoderGrid& encoder) {
  const std::string fault = fault_of(settings, encoder);
  if (!fault.empty()) throw JobError(settings.origin + ": " + fault);
}

/// Returns the place of the n-th patch in blocks of merge x merge.
ImageGrid place_of(std::int64_t n, std::int64_t columns, std::int64_t merge) {
  const std::int64_t block = n / (merge * merge), inside = n % (merge * merge), across = columns / merge;
  return {block / across * merge + inside / merge, block % across * merge + inside % merge};
}

}  // namespace

ImageProcessor::ImageProcessor(ImageSettings settings, EncoderGrid encoder)
    : settings_(std::move(settings)), encoder_(encoder) {
  check(settings_, encoder_);
  for (std::size_t channel = 0; channel < 3; ++channel) values_[channel] = values_of(settings_, channel);
}

ImageGrid ImageProcessor::patches_of(ImageSize tile) const {
  return {tile.height / encoder_.patch, tile.width / encoder_.patch};
}

void ImageProcessor::count_rows(ImagePlan& plan) const {
  for (const ImageTile& tile : plan.tiles) {
    const ImageGrid grid = patches_of(tile.size);
    plan.merged = {grid.rows / encoder_.merge, grid.columns / encoder_.merge};
    plan.encoder_rows += grid.rows * grid.columns + encoder_.class_row;
    plan.visual_rows += plan.merged.rows * plan.merged.columns + encoder_.keeps_class_row;
  }
  if (!std::holds_alternative<FittedTiles>(settings_.geometry)) return;
  const std::int64_t of_tile = plan.merged.rows * plan.merged.columns;
  if (plan.cut.rows == 0) {
    plan.visual_rows = of_tile + 1;  // one newline
    return;
  }
  const ImageGrid canvas{plan.cut.rows * plan.merged.rows, plan.cut.columns * plan.merged.columns};
  plan.merged = fitted_grid(plan.source, canvas, encoder_.most_tiles * of_tile);
  plan.visual_rows = of_tile + plan.merged.rows * (plan.merged.columns + 1);  // a newline after each row
}

Result<ImagePlan> ImageProcessor::plan(ImageSize size, std::int64_t images_in_sample) const {
  if (size.width < 1 || size.height < 1) return Error{ErrorCode::invalid_argument, "an image is empty"};
  Result<ImagePlan> plan = plan_tiles(settings_, size, images_in_sample);
  if (!plan) return Error{plan.error().code, settings_.origin + ": " + plan.error().message};
  count_rows(*plan);
  return plan;
}

std::vector<Image> ImageProcessor::tiles(const Image& image, const ImagePlan& plan) const {
  if (image.size() != plan.source) {
    throw std::invalid_argument("an image of " + in_pixels(image.size()) + " pixels has the plan of one with " +
                                in_pixels(plan.source));
  }
  const Resampler resampler(settings_.filter, settings_.order);
  std::vector<Image> results;
  const auto input = [&](std::size_t from) -> const Image& { return from == 0 ? image : results[from - 1]; };
  for (const ImageStage& stage : plan.stages) results.push_back(run(resampler, input(stage.from), stage));
  std::vector<Image> tiles;
  for (const ImageTile& tile : plan.tiles) tiles.push_back(part_of(input(tile.from), tile));
  return tiles;
}

void ImageProcessor::mix(const ImagePlan& plan, std::int32_t first, std::span<std::int32_t> sources,
                         std::span<float> weights) const {
  const std::vector<MixedRow> rows = mixed_rows(plan, patches_of(plan.tiles.at(0).size));
  const std::size_t count = rows.size() * mixed_terms;
  if (!mixes() || sources.size() != count || weights.size() != count) {
    throw std::invalid_argument("an image with " + std::to_string(rows.size()) + " rows is mixed into " +
                                std::to_string(sources.size()) + " sources");
  }
  auto source = sources.begin();
  auto weight = weights.begin();
  for (const MixedRow& row : rows) {
    for (const std::int32_t each : row.sources) *source++ = each == newline_row ? newline_row : first + each;
    weight = std::ranges::copy(row.weights, weight).out;
  }
}

void ImageProcessor::rows(std::span<const Image> tiles, std::span<float> pixels, std::span<std::int32_t> places) const {
  const std::int64_t columns = 3 * encoder_.patch * encoder_.patch;
  std::int64_t count = 0;
  for (const Image& tile : tiles) {
    const ImageGrid grid = patches_of(tile.size());
    count += grid.rows * grid.columns + encoder_.class_row;
  }
  if (std::ssize(pixels) != count * columns || std::ssize(places) != count * 3) {
    throw std::invalid_argument("the tiles have " + std::to_string(count) + " rows, not " +
                                std::to_string(places.size() / 3));
  }
  float* to = pixels.data();
  std::int32_t* place = places.data();
  const auto write_place = [&](std::size_t tile, std::int64_t row, std::int64_t column) {
    for (const std::int64_t part : {static_cast<std::int64_t>(tile), row, column}) {
      *place++ = static_cast<std::int32_t>(part);
    }
  };
  for (std::size_t tile = 0; tile < tiles.size(); ++tile) {
    if (encoder_.class_row) {
      to = std::fill_n(to, columns, 0.0f);
      write_place(tile, -1, -1);
    }
    const ImageGrid grid = patches_of(tiles[tile].size());
    for (std::int64_t n = 0; n < grid.rows * grid.columns; ++n) {
      const ImageGrid at = place_of(n, grid.columns, encoder_.merge);
      to = write_patch(tiles[tile], encoder_.patch, at, values_, to);
      write_place(tile, at.rows, at.columns);
    }
  }
}

ImageProcessor scaled_processor(const ScaledTile& tile) {
  ImageSettings settings;
  settings.origin = "[data] patch";
  settings.geometry = tile;
  settings.filter = ResampleFilter::bilinear;
  settings.mean = settings.deviation = {0.5, 0.5, 0.5};
  EncoderGrid encoder;
  encoder.patch = tile.patch;
  return {std::move(settings), encoder};
}

std::string ImageProcessor::fingerprint() const {
  std::string text = text_of(settings_.geometry);
  text += listed("filter", static_cast<std::int64_t>(settings_.filter), static_cast<std::int64_t>(settings_.order));
  text += listed("values", settings_.scale.value_or(1.0), std::int64_t{settings_.normalize});
  text += listed("mean", settings_.mean[0], settings_.mean[1], settings_.mean[2]);
  text += listed("deviation", settings_.deviation[0], settings_.deviation[1], settings_.deviation[2]);
  text += listed("encoder", encoder_.patch, encoder_.merge, std::int64_t{encoder_.class_row},
                 std::int64_t{encoder_.keeps_class_row}, encoder_.most_tiles);
  return checksum_of(text);
}

}  // namespace maestro
