// SPDX-License-Identifier: Apache-2.0
#include "sections/vision/vision_shape.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "runtime/core/result.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

constexpr Range size_range{.min = 1, .max = 1 << 20};
constexpr std::int64_t unknown_patches = 256;
constexpr NumberRange positive{.min = 0.0, .min_open = true};

[[noreturn]] void refuse(const std::string& section, const std::string& message) {
  throw JobError(section + ": " + message);
}

std::string setting(const char* key, std::int64_t value) {
  return std::string(key) + " = " + std::to_string(value);
}

std::string by(std::int64_t rows, std::int64_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

std::int64_t table_rows(const VisionConfig& config) {
  return config.max_patches / config.columns;
}

/// Returns the longer side of the largest images that fit the learned table.
std::int64_t full_size(const VisionConfig& config) {
  return std::min(table_rows(config), config.columns) * config.patch;
}

void check_patches(const std::string& section, const VisionConfig& config, const DataShape& data) {
  if (data.patch_columns == 0 || data.patch_columns == patch_columns(config)) return;
  if (config.mels > 0) {
    refuse(section, "the model hears frames of " + std::to_string(config.mels) + " bands, " +
                        std::to_string(patch_columns(config)) + " values a row, but the data's rows have " +
                        std::to_string(data.patch_columns) + "; prepare sounds with this model (data.processor)");
  }
  const auto side = std::llround(std::sqrt(static_cast<double>(data.patch_columns) / 3.0));
  refuse(section, setting("patch", config.patch) + " does not fit the data's patches of " + std::to_string(side) +
                      " x " + std::to_string(side) + " pixels; set patch = " + std::to_string(side) +
                      " here, or change data.patch");
}

}  // namespace

VisionConfig resolved(VisionConfig config, const DataShape& data) {
  if (config.ffn == 0) config.ffn = 4 * config.width;
  if (config.max_patches == 0) config.max_patches = data.pictures.largest.patches();
  if (config.max_patches == 0) config.max_patches = unknown_patches;
  if (!config.stored && config.columns == 0 && data.pictures.one_width) config.columns = data.pictures.columns;
  return config;
}

VisionConfig read_vision_shape(const JobTable& table, Modality modality) {
  VisionConfig config;
  if (const std::string weights = read_weights_folder(table); !weights.empty()) {
    auto stored = read_hf_vision_config(weights, modality);
    if (!stored) table.fail("weights", stored.error().message);
    config = *std::move(stored);
  }
  config.layers =
      table.integer("layers", config.layers, {.min = 1, .max = most_layers}, {"transformer layers", "layers"});
  config.width = table.integer("width", config.width, size_range, {"columns of the hidden state"});
  config.heads = table.integer("heads", config.heads, size_range, {"attention heads; divides width", "heads"});
  config.ffn = table.integer("ffn", config.ffn, {.min = 0, .max = size_range.max},
                             {"columns of the feed-forward network; 0: 4 x width"});
  config.patch =
      table.integer("patch", config.patch, {.min = 1, .max = 1024}, {"the side of a patch, as in the data", "pixels"});
  constexpr std::array<std::string_view, 2> positions{"learned", "2d"};
  const PatchPositions usual = config.positions == PatchPositions::grid ? config.positions : PatchPositions::learned;
  const PatchPositions chosen = table.choice(
      "positions", usual, positions,
      {"learned: a table of positions, with the columns of the data's images, or of each image if these differ; 2d: "
       "separate tables for rows and columns, for images of any shape"});
  if (table.has("positions") || usual == config.positions) config.positions = chosen;
  config.max_patches = table.integer("max_patches", config.max_patches, {.min = 0, .max = size_range.max},
                                     {"entries of the learned table; 0: from the data's largest image; a larger image "
                                      "is refused before the run starts",
                                      "patches"});
  config.max_grid =
      table.integer("max_grid", config.max_grid, size_range,
                    {"2d: entries of each table; a longer image is refused before the run starts", "patches"});
  config.norm_epsilon =
      table.number("norm_epsilon", config.norm_epsilon, positive, {"the addend to a norm's denominator"});
  config.init_std =
      table.number("init_std", config.init_std, positive, {"the standard deviation of initial random values"});
  if (config.width % config.heads != 0) {
    table.fail_among({"heads", "width"},
                     setting("heads", config.heads) + " does not divide " + setting("width", config.width));
  }
  return config;
}

void check_vision(const std::string& section, const VisionConfig& config, const DataShape& data) {
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"layers", config.layers},    {"width", config.width}, {"heads", config.heads},
      {"ffn", config.ffn},          {"patch", config.patch}, {"max_patches", config.max_patches},
      {"max_grid", config.max_grid}};
  for (const auto& [key, value] : sizes) {
    if (value < 1) refuse(section, setting(key, value) + " is too small; it must be at least 1");
  }
  if (config.width % config.heads != 0) {
    refuse(section, setting("heads", config.heads) + " does not divide " + setting("width", config.width));
  }
  check_patches(section, config, data);
  const std::string most_of =
      section + (config.mels > 0 ? ": the data's sounds" : ": the data's images") + " have up to ";
  const bool by_own_columns = config.positions == PatchPositions::learned && config.columns == 0;
  const PatchGrid most{data.pictures.rows, data.pictures.columns};
  if (config.whole_tiles && most.rows > 0) check_whole_tile(config, most, most_of);
  check_grid(config, by_own_columns ? data.pictures.largest : most, most_of);
}

void check_grid(const VisionConfig& config, const PatchGrid& grid, const std::string& image) {
  if (config.positions == PatchPositions::none || config.positions == PatchPositions::interpolated) return;
  if (config.mels > 0) {
    if (grid.columns <= 2 && grid.rows <= config.max_patches) return;
    throw JobError(image + std::to_string(grid.rows) + " rows, more than the position table's " +
                   std::to_string(config.max_patches) + "; cut the sounds into shorter ones");
  }
  const std::string start = image + by(grid.rows, grid.columns) + " patches, more than ";
  const auto way_out = [&](std::int64_t needed, const char* key) {
    const std::string shrink = std::string("shrink images by data.") + key;
    return config.stored ? "; " + shrink : "; raise it to " + std::to_string(needed) + ", or " + shrink;
  };
  if (config.positions == PatchPositions::grid) {
    const std::int64_t longer = std::max(grid.rows, grid.columns);
    if (longer <= config.max_grid) return;
    throw JobError(start + setting("max_grid", config.max_grid) + " along one side" +
                   way_out(longer, "max_image_size"));
  }
  if (config.columns == 0) {
    if (grid.patches() <= config.max_patches) return;
    throw JobError(start + setting("max_patches", config.max_patches) + way_out(grid.patches(), "image_size"));
  }
  if (grid.columns <= config.columns && grid.rows * config.columns <= config.max_patches) return;
  throw JobError(start + "the position table's " + by(table_rows(config), config.columns) +
                 "; set data.image_size = " + std::to_string(full_size(config)) + " at most");
}

void check_whole_tile(const VisionConfig& config, const PatchGrid& grid, const std::string& tile) {
  const PatchGrid whole{table_rows(config), config.columns};
  if (grid == whole) return;
  throw JobError(tile + by(grid.rows, grid.columns) + " patches, but the model takes tiles of " +
                 by(whole.rows, whole.columns) + "; its image settings must make tiles of " +
                 by(whole.columns * config.patch, whole.rows * config.patch) + " pixels");
}

std::string note_on_grid(const VisionConfig& config, const PictureGrids& pictures) {
  if (!config.stored || config.whole_tiles || config.mels > 0 || config.positions != PatchPositions::learned ||
      config.columns == 0)
    return "";
  const bool filled = pictures.columns == config.columns || pictures.rows == table_rows(config);
  if (pictures.columns == 0 || filled) return "";
  return "images have up to " + by(pictures.rows, pictures.columns) + " patches and take the first of the " +
         by(table_rows(config), config.columns) +
         " entries of the stored position table; data.image_size = " + std::to_string(full_size(config)) + " fills it";
}

double patch_flops(const VisionConfig& config, const SampleShape& sample) {
  const auto product = [&](std::int64_t columns) {
    return 2.0 * static_cast<double>(sample.patches * columns * config.width);
  };
  if (config.mels == 0) return product(config.times * patch_columns(config));
  return product(patch_columns(config)) + product(row_windows * config.width);
}

double vision_flops(const VisionConfig& config, const SampleShape& sample) {
  if (sample.patches == 0) return 0;
  const auto patches = static_cast<double>(sample.patches);
  const double each = patches / static_cast<double>(sample.images > 0 ? sample.images : 1);
  const auto width = static_cast<double>(config.width);
  const auto ffn = static_cast<double>(config.ffn);
  const double products = 2.0 * patches * width * (4.0 * width + static_cast<double>(config.ffn_matrices()) * ffn);
  const double score = 2.0 * 2.0 * patches * width;
  const double layers = static_cast<double>(config.run_layers());
  const double full = config.window == 0 ? layers : static_cast<double>(config.full_layers.size());
  const double seen = std::min(each, static_cast<double>(config.window * config.window));
  return patch_flops(config, sample) + layers * products + score * (full * each + (layers - full) * seen);
}

double vision_bytes(const VisionConfig& config, const SampleShape& sample, DType precision, std::int64_t recompute) {
  const auto width = static_cast<double>(config.width);
  // Two norms; q, k, v; the attention's result; two branches; the FFN before and after its activation.
  double activations =
      2.0 * width + 3.0 * width + width + 2.0 * width + static_cast<double>(config.ffn_matrices() * config.ffn);
  if (config.head_norms) activations += 2.0 * width;        // query and key before their norms
  if (config.branch_scale > 0) activations += 2.0 * width;  // branches before their factors
  const double residuals = 2.0 * width * sizeof(float);
  const double layer = activations * static_cast<double>(size_of(precision)) + residuals;
  const double norm = width * (sizeof(float) + static_cast<double>(size_of(precision)));
  const double ends = ((config.pre_norm ? 3.0 : 2.0) + static_cast<double>(config.taps.size())) * norm;
  // The windows' products and their GELU, in both dtypes, and the second convolution's.
  const double stem =
      config.mels > 0
          ? (row_windows + 1.0) * (2.0 * static_cast<double>(size_of(precision)) * width + width * sizeof(float))
          : 0.0;
  const std::int64_t layers = config.run_layers(), group = recompute == 0 ? layers : std::min(recompute, layers);
  const std::int64_t streams = recompute == 0 ? 0 : (layers + group - 1) / group;
  return static_cast<double>(sample.patches) *
         (static_cast<double>(group) * layer + static_cast<double>(streams) * norm + ends + stem);
}

double vision_working_bytes(const VisionConfig& config, const SampleShape& sample, DType precision) {
  const auto width = static_cast<double>(config.width);
  const double branch = std::max(4.0 * width, static_cast<double>(config.ffn_matrices() * config.ffn)) + 2.0 * width;
  const double row = branch * static_cast<double>(size_of(precision)) + 2.0 * width * sizeof(float);
  return static_cast<double>(sample.patches) * row;
}

}  // namespace maestro
