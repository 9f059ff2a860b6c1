// SPDX-License-Identifier: Apache-2.0
#include "runtime/images/encoder_grid.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/images/image_processor.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/vision_part.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

/// A part together with its file, for messages.
struct ReadPart {
  std::string file;
  VisionPart part;
};

Result<ReadPart> read_part(const fs::path& folder, Modality modality) {
  const auto config = read_hf_config_text(folder);
  if (!config) return config.error();
  const auto type = hf_model_type(config->text, config->file);
  if (!type) return type.error();
  if (!has_vision_part(*type)) {
    std::string types;
    for (const std::string& each : vision_part_types()) types += (types.empty() ? "" : ", ") + each;
    return Error{ErrorCode::invalid_argument, config->file + ": model_type = \"" + *type +
                                                  "\" is not supported for images or sounds; these are: " + types};
  }
  const auto part = parse_vision_part(config->text, config->file, modality);
  if (!part) return part.error();
  return ReadPart{config->file, *part};
}

/// Checks that the model and the image settings name the same canvases.
Status check_canvases(const ReadPart& read, const fs::path& folder) {
  const Result<ImageSettings> settings = read_image_settings(folder);
  if (!settings) return settings.error();
  const auto* fitted = std::get_if<FittedTiles>(&settings->geometry);
  const auto same = [](const ImageSize& size, const ImageCanvas& canvas) {
    return size.width == canvas.width && size.height == canvas.height;
  };
  if (fitted != nullptr && std::ranges::equal(fitted->canvases, read.part.canvases, same)) return {};
  return Error{ErrorCode::invalid_argument,
               read.file + ": image_grid_pinpoints differs from the canvases in " + settings->origin};
}

}  // namespace

Result<EncoderGrid> read_encoder_grid(const fs::path& folder) {
  const Result<ReadPart> read = read_part(folder, Modality::image);
  if (!read) return read.error();
  const VisionPart& part = read->part;
  EncoderGrid grid;
  grid.patch = part.encoder.patch;
  grid.merge = std::llround(std::sqrt(static_cast<double>(part.projector.join * part.projector.pool)));
  grid.class_row = part.encoder.class_row;
  grid.keeps_class_row = part.encoder.class_row && part.projector.tile_rows == 0;
  if (part.most_tiles == 0) return grid;
  grid.most_tiles = part.most_tiles;
  if (const Status same = check_canvases(*read, folder); !same) return same.error();
  return grid;
}

Result<std::int64_t> read_image_token(const fs::path& folder, Modality modality) {
  const Result<ReadPart> read = read_part(folder, modality);
  return read ? Result<std::int64_t>(read->part.image_token) : read.error();
}

}  // namespace maestro
