// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/media_processor.hpp"

#include <algorithm>
#include <stdexcept>

#include "runtime/core/printable.hpp"
#include "runtime/images/encoder_grid.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/vision_part.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

Error other_medium(const std::string& name, const Medium& medium, Media read) {
  const Medium& other = medium == image_medium ? sound_medium : image_medium;
  const std::string start = printable(name) + " is " + one_of(other) + ", but ";
  return {ErrorCode::invalid_argument, read.size() > 1 ? start + one_of(medium) + " is named there"
                                                       : start + "the model reads " + std::string(medium.noun) + "s"};
}

ImageSize size_of_sound(const SoundFormat& format) {
  return {format.samples, format.rate};
}

/// Refuses a file that is not what its plan was made for.
Error changed(const std::string& name) {
  return {ErrorCode::corrupt, printable(name) + " has another size than in the prepared data; prepare them again"};
}

Result<MediaProcessor> read_images(const fs::path& folder, PassOrder order) {
  const Result<EncoderGrid> encoder = read_encoder_grid(folder);
  if (!encoder) return encoder.error();
  Result<ImageSettings> settings = read_image_settings(folder, order);
  if (!settings) return settings.error();
  return MediaProcessor(ImageProcessor(*std::move(settings), *encoder));
}

Result<MediaProcessor> read_sounds(const fs::path& folder) {
  const Result<SoundGrid> grid = read_sound_grid(folder);
  if (!grid) return grid.error();
  Result<SoundSettings> settings = read_sound_settings(folder);
  if (!settings) return settings.error();
  return MediaProcessor(SoundProcessor(*std::move(settings), *grid));
}

}  // namespace

std::size_t bytes_of(const MediaContent& content) {
  if (const auto* frames = std::get_if<MelFrames>(&content)) return frames->values.size() * sizeof(float);
  std::size_t bytes = 0;
  for (const Image& tile : std::get<std::vector<Image>>(content)) bytes += tile.pixels.size();
  return bytes;
}

Result<ImageSize> media_size(std::string_view bytes, const std::string& name, const Medium& medium, Media read) {
  const bool heard = is_sound(bytes);
  if (medium == image_medium) return heard ? other_medium(name, medium, read) : image_size(bytes, name);
  if (!heard && image_size(bytes, name).ok()) return other_medium(name, medium, read);
  const Result<SoundFormat> format = read_sound_format(bytes, name);
  return format ? Result<ImageSize>(size_of_sound(*format)) : format.error();
}

Result<ImageSize> media_size(const fs::path& file, const Medium& medium, Media read) {
  if (medium == image_medium) {
    Result<ImageSize> size = image_size(file);
    return size || !read_sound_format(file).ok() ? size : other_medium(file.string(), medium, read);
  }
  const Result<SoundFormat> format = read_sound_format(file);
  if (format) return size_of_sound(*format);
  return image_size(file).ok() ? other_medium(file.string(), medium, read) : format.error();
}

const Medium& medium_of(const fs::path& file, Media read) {
  return read.size() > 1 && read_sound_format(file).ok() ? sound_medium : read.front();
}

Result<MediaProcessor> MediaProcessor::read(const fs::path& folder, PassOrder order) {
  const auto config = read_hf_config_text(folder);
  if (!config) return config.error();
  const auto type = hf_model_type(config->text, config->file);
  if (!type) return type.error();
  try {
    if (!has_sound_part(*type)) return read_images(folder, order);
    Result<MediaProcessor> sounds = read_sounds(folder);
    if (!sounds || !has_image_part(*type)) return sounds;
    Result<MediaProcessor> images = read_images(folder, order);
    if (!images) return images;
    return MediaProcessor(*std::move(images->images_), *std::move(sounds->sounds_));
  } catch (const JobError& problem) {
    return Error{problem.code(), problem.what()};
  }
}

Result<ImagePlan> MediaProcessor::plan(ImageSize size, std::int64_t in_sample, Modality modality) const {
  if (modality == Modality::image) return images_->plan(size, in_sample);
  return sounds_->plan({size.height, 1, size.width});
}

Result<MediaContent> MediaProcessor::decode(std::string_view bytes, const std::string& name,
                                            const ImagePlan& plan) const {
  return plan.modality == Modality::image ? content(decode_image(bytes, name), name, plan)
                                          : content(read_sound(bytes, name), name, plan);
}

Result<MediaContent> MediaProcessor::decode(const fs::path& file, const ImagePlan& plan) const {
  return plan.modality == Modality::image ? content(decode_image(file), file.string(), plan)
                                          : content(read_sound(file), file.string(), plan);
}

Result<MediaContent> MediaProcessor::content(const Result<Image>& image, const std::string& name,
                                             const ImagePlan& plan) const {
  if (!image) return image.error();
  return image->size() == plan.source ? Result<MediaContent>(images()->tiles(*image, plan)) : changed(name);
}

Result<MediaContent> MediaProcessor::content(const Result<Sound>& sound, const std::string& name,
                                             const ImagePlan& plan) const {
  if (!sound) return sound.error();
  const bool same = size_of_sound({sound->rate, 1, std::ssize(sound->samples)}) == plan.source;
  return same ? Result<MediaContent>(sounds()->frames(*sound)) : changed(name);
}

void MediaProcessor::rows(const MediaContent& content, std::span<float> pixels, std::span<std::int32_t> places) const {
  const auto* tiles = std::get_if<std::vector<Image>>(&content);
  if (tiles != nullptr ? !images_ : !sounds_) throw std::invalid_argument("rows of another kind than read here");
  if (tiles != nullptr) return images_->rows(*tiles, pixels, places);
  sounds_->rows(std::get<MelFrames>(content), pixels, places);
}

std::int64_t MediaProcessor::columns(Modality modality) const {
  if (modality == Modality::sound) return sounds_->columns();
  return 3 * images_->encoder().patch * images_->encoder().patch;
}

ImageGrid MediaProcessor::tile_grid(const ImagePlan& plan) const {
  if (plan.modality == Modality::image) return tile_patches(plan, images_->encoder());
  const std::int64_t chunk = sounds_->grid().chunk_rows;
  return {chunk > 0 ? std::min(chunk, plan.encoder_rows) : plan.encoder_rows / std::ssize(plan.tiles), 1};
}

std::string MediaProcessor::fingerprint() const {
  return (images_ ? images_->fingerprint() : "") + (sounds_ ? sounds_->fingerprint() : "");
}

}  // namespace maestro
