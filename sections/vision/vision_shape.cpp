#include "sections/vision/vision_shape.hpp"

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

void check_patches(const std::string& section, const VisionConfig& config, const DataShape& data) {
  if (data.patch_columns == 0 || data.patch_columns == patch_columns(config)) return;
  const auto side = std::llround(std::sqrt(static_cast<double>(data.patch_columns) / 3.0));
  refuse(section, setting("patch", config.patch) + " does not fit the data's patches of " + std::to_string(side) +
                      " x " + std::to_string(side) + " pixels; set patch = " + std::to_string(side) +
                      " here, or change data.patch");
}

}  // namespace

VisionConfig resolved(VisionConfig config, const DataShape& data) {
  if (config.ffn == 0) config.ffn = 4 * config.width;
  if (config.max_patches == 0) config.max_patches = data.max_patches > 0 ? data.max_patches : unknown_patches;
  return config;
}

VisionConfig read_vision_shape(const JobTable& table) {
  VisionConfig config;
  if (const std::string weights = read_weights_folder(table); !weights.empty()) {
    auto stored = read_hf_vision_config(weights);
    if (!stored) table.fail("weights", stored.error().message);
    config = *std::move(stored);
  }
  config.layers = table.integer("layers", config.layers, {.min = 1, .max = 65536});
  config.width = table.integer("width", config.width, size_range);
  config.heads = table.integer("heads", config.heads, size_range);
  config.ffn = table.integer("ffn", config.ffn, {.min = 0, .max = size_range.max});
  config.patch = table.integer("patch", config.patch, {.min = 1, .max = 1024});
  const bool grid = config.positions == PatchPositions::grid;
  const std::string positions = table.choice("positions", grid ? "2d" : "learned", {"learned", "2d"});
  config.positions = positions == "2d" ? PatchPositions::grid : PatchPositions::learned;
  config.max_patches = table.integer("max_patches", config.max_patches, {.min = 0, .max = size_range.max});
  config.max_grid = table.integer("max_grid", config.max_grid, size_range);
  config.norm_epsilon = table.number("norm_epsilon", config.norm_epsilon, positive);
  config.init_std = table.number("init_std", config.init_std, positive);
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
}

double vision_flops(const VisionConfig& config, const SampleShape& sample) {
  if (sample.patches == 0) return 0;
  const auto patches = static_cast<double>(sample.patches);
  const double each = patches / static_cast<double>(sample.images > 0 ? sample.images : 1);
  const auto width = static_cast<double>(config.width);
  const auto ffn = static_cast<double>(config.ffn);
  const double products = 2.0 * patches * width * (4.0 * width + 2.0 * ffn);
  const double scores = 2.0 * 2.0 * patches * each * width;
  const double embedding = 2.0 * patches * static_cast<double>(patch_columns(config)) * width;
  return embedding + static_cast<double>(config.layers) * (products + scores);
}

double vision_bytes(const VisionConfig& config, const SampleShape& sample, DType precision) {
  const auto width = static_cast<double>(config.width);
  // Two norms, q, k, v, the attention's result, two branches, and the FFN before and behind its activation.
  const double activations = 2.0 * width + 3.0 * width + width + 2.0 * width + 2.0 * static_cast<double>(config.ffn);
  const double residuals = 2.0 * width * sizeof(float);
  const double layer = activations * static_cast<double>(size_of(precision)) + residuals;
  const double ends = 2.0 * width * (sizeof(float) + static_cast<double>(size_of(precision)));
  return static_cast<double>(sample.patches) * (static_cast<double>(config.layers) * layer + ends);
}

}  // namespace maestro
