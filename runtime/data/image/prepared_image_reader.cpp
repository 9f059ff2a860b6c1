// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/image/prepared_image_reader.hpp"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t place_columns = 3;

/// A span's elements, and the number that it must have.
struct Room {
  std::size_t given = 0;
  std::int64_t wanted = 0;
  [[nodiscard]] bool fits() const { return static_cast<std::int64_t>(given) == wanted; }
};

void check_room(const char* what, std::int64_t rows, const Room& one, const Room& other) {
  if (one.fits() && other.fits()) return;
  throw std::invalid_argument(std::to_string(rows) + " " + what + " read into spans with room for " +
                              std::to_string(one.given) + " and " + std::to_string(other.given));
}

/// A step of 128 images in 13 tiles of 512 x 512 pixels takes 1.3 GB, and steps are prepared ahead.
std::size_t default_cache_bytes() {
  constexpr std::size_t most = std::size_t{4} << 30;
  const long pages = ::sysconf(_SC_PHYS_PAGES), bytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && bytes > 0 ? std::min(most, static_cast<std::size_t>(pages) * static_cast<std::size_t>(bytes) / 8)
                                : most / 4;
}

MediaProcessor open_processor(const fs::path& folder, const PreparedImages& images) {
  if (images.scaled) return scaled_processor(*images.scaled);
  return MediaProcessor::read(folder, images.resample_order).value_or_throw();
}

}  // namespace

PreparedImageReader::PreparedImageReader(fs::path folder, const PreparedImages& images, const fs::path& processor,
                                         Modality table)
    : folder_(std::move(folder)),
      processor_folder_(processor.empty() ? folder_ / prepared_processor_folder : processor),
      images_(images),
      mark_rule_(images_.scaled ? MarkRule() : read_mark_rule(processor_folder_).value_or_throw()),
      processor_(open_processor(processor_folder_, images_)),
      table_(table),
      cache_(default_cache_bytes()) {}

Result<PreparedImage> PreparedImageReader::planned(PreparedImage image) const {
  const Result<ImagePlan> plan = processor_.plan(image.size, image.in_sample, medium().modality);
  if (!plan) return plan.error();
  image.tiles = std::ssize(plan->tiles);
  image.encoder_rows = plan->encoder_rows;
  image.visual_rows = plan->visual_rows;
  return image;
}

Result<ImagePlan> PreparedImageReader::plan(const PreparedImage& image) const {
  Result<ImagePlan> plan = processor_.plan(image.size, image.in_sample, medium().modality);
  if (!plan || (std::ssize(plan->tiles) == image.tiles && plan->encoder_rows == image.encoder_rows &&
                plan->visual_rows == image.visual_rows)) {
    return plan;
  }
  return Error{ErrorCode::corrupt,
               processor_folder_.string() + ": the processor in it has changed; prepare the data again"};
}

Result<PatchGrid> PreparedImageReader::tile_grid(const PreparedImage& image) const {
  const Result<ImagePlan> made = plan(image);
  if (!made) return made.error();
  const ImageGrid tile = processor_.tile_grid(*made);
  return PatchGrid{tile.rows, tile.columns};
}

StoredImage PreparedImageReader::stored(const NumberedImage& image) const {
  const ImageContainer& container = images_.containers[static_cast<std::size_t>(image.place.container)];
  const std::string& name = image.place.name;
  if (container.kind == ImageContainer::Kind::folder) return {fs::path(container.path) / name, name};
  if (container.kind == ImageContainer::Kind::archive) return {container.path, name, image.place.position};
  const std::string shown = name.empty() ? "the image at byte " + std::to_string(image.place.position) : name;
  return {folder_ / container.path, shown, image.place.position, image.image.bytes};
}

Result<ImageCache::Tiles> PreparedImageReader::load(const NumberedImage& image) const {
  const Result<std::string> bytes = read_prepared_image(folder_, images_, image.place, image.image.bytes);
  if (!bytes) return bytes.error();
  const Result<ImagePlan> made = plan(image.image);
  if (!made) return made.error();
  return processor_.decode(*bytes, image_name(images_, image.place), *made);
}

Status PreparedImageReader::prepare(const NumberedImage& image) const {
  return cache_.pin(image.number, [&] { return load(image); });
}

Status PreparedImageReader::read(std::span<const NumberedImage> images, std::span<float> pixels,
                                 std::span<std::int32_t> places) const {
  std::int64_t rows = 0, tile = 0;
  for (const NumberedImage& image : images) rows += image.image.encoder_rows;
  check_room("rows", rows, {pixels.size(), rows * patch_columns()}, {places.size(), rows * place_columns});
  for (const NumberedImage& image : images) {
    const auto tiles = cache_.take(image.number, [&] { return load(image); });
    if (!tiles) return tiles.error();
    const auto count = static_cast<std::size_t>(image.image.encoder_rows);
    const std::size_t values = count * static_cast<std::size_t>(patch_columns());
    const auto own = places.first(count * place_columns);
    processor_.rows(**tiles, pixels.first(values), own);
    for (std::size_t at = 0; at < own.size(); at += place_columns) own[at] += static_cast<std::int32_t>(tile);
    pixels = pixels.subspan(values);
    places = places.subspan(own.size());
    tile += image.image.tiles;
  }
  return {};
}

Status PreparedImageReader::mix(std::span<const NumberedImage> images, std::span<std::int32_t> sources,
                                std::span<float> weights) const {
  constexpr auto terms = static_cast<std::int64_t>(mixed_terms);
  std::int64_t rows = 0, first = 0;
  for (const NumberedImage& image : images) rows += image.image.visual_rows;
  check_room("visual rows", rows, {sources.size(), rows * terms}, {weights.size(), rows * terms});
  for (const NumberedImage& image : images) {
    const Result<ImagePlan> made = plan(image.image);
    if (!made) return made.error();
    const auto count = static_cast<std::size_t>(image.image.visual_rows * terms);
    write_mix(mixed_rows(*made, processor_.tile_grid(*made)), first, sources.first(count), weights.first(count));
    sources = sources.subspan(count);
    weights = weights.subspan(count);
    first += image.image.encoder_rows;
  }
  return {};
}

Status PreparedImageReader::mark(std::span<const NumberedImage> images, std::span<const std::int32_t> tokens,
                                 std::int64_t prefix, std::span<std::int32_t> marks) const {
  std::vector<ImageGrid> grids;
  for (const NumberedImage& image : images) {
    const Result<ImagePlan> made = plan(image.image);
    if (!made) return made.error();
    grids.push_back(made->merged);
  }
  write_marks(mark_rule_, {tokens, prefix, grids}, marks);
  return {};
}

}  // namespace maestro
