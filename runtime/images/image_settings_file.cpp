// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include "runtime/core/input_file.hpp"
#include "runtime/images/image_processor.hpp"
#include "runtime/model/hf_keys.hpp"

namespace maestro {

namespace {

constexpr std::array<double, 3> clip_mean{0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> clip_deviation{0.26862954, 0.26130258, 0.27577711};
constexpr std::array<double, 3> halves{0.5, 0.5, 0.5};
constexpr std::int64_t most_pixels = std::int64_t{1} << 40;

std::int64_t side_in(const JsonValue& value, std::optional<std::int64_t> absent = {}) {
  return value.whole_number(1, largest_image_side, absent);
}

/// A size as files state it: a shorter side, or both sides.
struct StatedSize {
  std::int64_t shortest_edge = 0;  // 0: both sides are stated
  ImageSize size;
};

ImageSize sides_in(const JsonValue& value) {
  value.allow_keys({"height", "width"});
  return {side_in(value.at("width")), side_in(value.at("height"))};
}

/// Reads {"height", "width"}, {"shortest_edge"}, or a number, whose meaning depends on the class.
StatedSize size_in(const HfKeys& keys, bool number_is_square, StatedSize absent) {
  const JsonValue value = keys.find("size");
  if (!value) return absent;
  if (value.json().is_number()) {
    const std::int64_t side = side_in(value);
    return keys.flag("default_to_square", number_is_square) ? StatedSize{0, {side, side}} : StatedSize{side, {}};
  }
  if (!value.at("shortest_edge")) return {0, sides_in(value)};
  value.allow_keys({"shortest_edge"});
  return {side_in(value.at("shortest_edge")), {}};
}

ImageSize crop_in(const HfKeys& keys, std::optional<ImageSize> absent) {
  const JsonValue value = keys.find("crop_size");
  if (!value && absent) return *absent;
  if (!value) keys.fail("crop_size", "is missing, but do_center_crop is true");
  if (!value.json().is_number()) return sides_in(value);
  return {side_in(value), side_in(value)};
}

/// Returns the tile for a size. `crop`: the size that the class cuts out by default; `pads`: it has do_pad.
SquareTile square_in(const HfKeys& keys, const StatedSize& stated, std::optional<ImageSize> crop, bool pads) {
  SquareTile tile{pads && keys.flag("do_pad", false), stated.shortest_edge, stated.size};
  const std::int64_t edge = stated.shortest_edge;
  if (edge > 0) tile.size = {edge, edge};
  if (!keys.flag("do_center_crop", crop.has_value())) {
    (void)keys.find("crop_size");  // without effect
    if (edge > 0 && !tile.pad) keys.fail("size", "shortest_edge needs do_center_crop = true: tiles have one size");
    return tile;
  }
  const ImageSize cut = crop_in(keys, crop);
  const bool inside = edge > 0 ? cut.width <= edge && cut.height <= edge : cut == tile.size;
  if (!inside) keys.find("crop_size").refuse("does not fit size = " + shown(keys.find("size").json()));
  tile.size = cut;
  return tile;
}

void read_clip(const HfKeys& keys, ImageSettings& settings) {
  settings.geometry = square_in(keys, size_in(keys, false, {224, {}}), ImageSize{224, 224}, false);
}

void read_llava(const HfKeys& keys, ImageSettings& settings) {
  settings.geometry = square_in(keys, size_in(keys, false, {224, {}}), ImageSize{224, 224}, true);
}

void read_siglip(const HfKeys& keys, ImageSettings& settings) {
  settings.geometry = square_in(keys, size_in(keys, false, {0, {224, 224}}), {}, false);
  if (keys.find("image_seq_length")) settings.visual_rows = keys.size("image_seq_length");
}

void read_gemma3(const HfKeys& keys, ImageSettings& settings) {
  keys.require_flag("do_center_crop", false);
  settings.geometry = square_in(keys, size_in(keys, true, {0, {224, 224}}), {}, false);
  keys.require_flag("do_pan_and_scan", false);
}

/// Returns the side of a size that has to be a square.
std::int64_t square_side(const HfKeys& keys, const StatedSize& stated) {
  if (stated.shortest_edge > 0) return stated.shortest_edge;
  if (stated.size.width != stated.size.height) keys.find("size").refuse("is not a square");
  return stated.size.width;
}

/// Reads pairs of height and width; the class has every canvas of up to 6 x 6 tiles of 384 pixels.
std::vector<ImageSize> canvases_in(const HfKeys& keys, std::int64_t side) {
  std::vector<ImageSize> canvases;
  const JsonValue pairs = keys.find("image_grid_pinpoints");
  constexpr std::int64_t most = 6, default_side = 384;
  for (std::int64_t at = 0; !pairs && at < most * most; ++at) {
    canvases.push_back({(at % most + 1) * default_side, (at / most + 1) * default_side});
  }
  for (const JsonValue& pair : pairs ? pairs.items() : std::vector<JsonValue>{}) {
    const std::vector<JsonValue> sides = pair.items();
    if (sides.size() != 2) pair.expected("a height and a width");
    canvases.push_back({side_in(sides[1]), side_in(sides[0])});
  }
  for (const ImageSize canvas : canvases) {
    if (canvas.width % side == 0 && canvas.height % side == 0) continue;
    keys.fail("image_grid_pinpoints", std::to_string(canvas.height) + " x " + std::to_string(canvas.width) +
                                          " does not divide into tiles of " + std::to_string(side) + " pixels");
  }
  if (canvases.empty()) pairs.refuse("has no canvas");
  return canvases;
}

void read_onevision(const HfKeys& keys, ImageSettings& settings) {
  keys.require_flag("do_center_crop", false);
  keys.require_absent("crop_size");
  const std::int64_t side = square_side(keys, size_in(keys, false, {0, {384, 384}}));
  settings.geometry = FittedTiles{side, canvases_in(keys, side)};
}

/// Reads {"longest_edge"}.
std::int64_t longest_edge_in(const HfKeys& keys, std::string_view key, std::int64_t absent) {
  const JsonValue value = keys.find(key);
  if (!value) return absent;
  value.allow_keys({"longest_edge"});
  return side_in(value.at("longest_edge"));
}

void read_smolvlm(const HfKeys& keys, ImageSettings& settings) {
  FilledTiles filled;
  filled.longest_edge = longest_edge_in(keys, "size", 1456);
  filled.side = longest_edge_in(keys, "max_image_size", 364);
  filled.split = keys.flag("do_image_splitting", true);
  settings.geometry = filled;
}

void read_got_ocr(const HfKeys& keys, ImageSettings& settings) {
  constexpr std::int64_t most_tiles = 1000;
  AspectTiles tiles;
  const StatedSize stated = size_in(keys, true, {0, {384, 384}});
  if (stated.shortest_edge > 0) keys.find("size").refuse("is not supported; only height and width are");
  tiles.tile = stated.size;
  tiles.fewest = keys.size("min_patches", 1, 1, most_tiles);
  tiles.most = keys.size("max_patches", 12, 1, most_tiles);
  settings.geometry = tiles;
}

/// Reads the limits of the area: min_pixels and max_pixels come before the keys of size.
void read_areas(const HfKeys& keys, NativeTile& tile) {
  tile.smallest_area = keys.size("min_pixels", 56 * 56, 1, most_pixels);
  tile.largest_area = keys.size("max_pixels", 28 * 28 * 1280, 1, most_pixels);
  const bool least = static_cast<bool>(keys.find("min_pixels")), most = static_cast<bool>(keys.find("max_pixels"));
  const JsonValue size = keys.find("size");
  if (!size) return;
  for (const auto& [key, value] : size.members()) {
    const bool replaced = (key == "min_pixels" && least) || (key == "max_pixels" && most);
    if (!replaced && key != "shortest_edge" && key != "longest_edge") {
      value.refuse("is not supported; shortest_edge and longest_edge are");
    }
  }
  if (!least) tile.smallest_area = size.at("shortest_edge").whole_number(1, most_pixels);
  if (!most) tile.largest_area = size.at("longest_edge").whole_number(1, most_pixels);
}

void read_qwen(const HfKeys& keys, ImageSettings& settings) {
  NativeTile tile;
  tile.patch = keys.size("patch_size", 14, 1, largest_image_side);
  tile.merge = keys.size("merge_size", 2, 1, largest_image_side);
  if (keys.size("temporal_patch_size", 2) != 2) {
    keys.find("temporal_patch_size").refuse("is not supported; only 2 is");
  }
  read_areas(keys, tile);
  if (tile.smallest_area > tile.largest_area) keys.fail("size", "the smallest area is above the largest");
  settings.geometry = tile;
}

struct ProcessorClass {
  std::string_view name;
  ResampleFilter filter;
  bool clip_numbers;  // CLIP's mean and deviation, else 0.5
  void (*read)(const HfKeys&, ImageSettings&);
};

constexpr ProcessorClass classes[] = {
    {"CLIPImageProcessor", ResampleFilter::bicubic, true, read_clip},
    {"Gemma3ImageProcessor", ResampleFilter::bilinear, false, read_gemma3},
    {"GotOcr2ImageProcessor", ResampleFilter::bicubic, true, read_got_ocr},
    {"Idefics3ImageProcessor", ResampleFilter::lanczos, false, read_smolvlm},
    {"LlavaImageProcessor", ResampleFilter::bicubic, true, read_llava},
    {"LlavaOnevisionImageProcessor", ResampleFilter::bicubic, true, read_onevision},
    {"Qwen2VLImageProcessor", ResampleFilter::bicubic, true, read_qwen},
    {"SiglipImageProcessor", ResampleFilter::bicubic, false, read_siglip},
    {"SmolVLMImageProcessor", ResampleFilter::lanczos, false, read_smolvlm},
};

/// Keys without effect on the tiles, since images are decoded as RGB: choices of the caller, of batches and videos,
/// and settings of steps that are refused.
constexpr std::string_view without_effect[] = {"_valid_processor_keys",
                                               "data_format",
                                               "default_to_square",
                                               "device",
                                               "disable_grouping",
                                               "do_convert_rgb",
                                               "do_pad",
                                               "feature_extractor_type",
                                               "image_processor_type",
                                               "input_data_format",
                                               "pan_and_scan_max_num_crops",
                                               "pan_and_scan_min_crop_size",
                                               "pan_and_scan_min_ratio_to_activate",
                                               "processor_class",
                                               "return_row_col_info",
                                               "return_tensors",
                                               "video_sampling"};

bool has_no_effect(std::string_view key) {
  return std::ranges::find(without_effect, key) != std::end(without_effect);
}

/// Keys of WhisperFeatureExtractor, in the file of a model that also hears. Its reader checks them.
bool is_of_sounds(std::string_view key) {
  constexpr std::array<std::string_view, 13> keys{
      "chunk_length", "dither",    "do_normalize",  "feature_extractor_type", "feature_size",  "hop_length",
      "n_fft",        "n_samples", "nb_max_frames", "padding_side",           "padding_value", "return_attention_mask",
      "sampling_rate"};
  return std::ranges::find(keys, key) != keys.end();
}

std::array<double, 3> three_in(const HfKeys& keys, std::string_view key, const std::array<double, 3>& absent) {
  const JsonValue value = keys.find(key);
  if (!value) return absent;
  if (value.json().is_number()) return {value.number(), value.number(), value.number()};
  const std::vector<JsonValue> items = value.items();
  if (items.size() != 3) value.expected("a number, or three for red, green and blue");
  return {items[0].number(), items[1].number(), items[2].number()};
}

const ProcessorClass& class_in(const HfKeys& keys) {
  const JsonValue value = keys.find("image_processor_type");
  std::string name = value ? value.text() : keys.find("feature_extractor_type").text(std::string());
  if (name.empty()) keys.fail("image_processor_type", "is missing");
  for (const std::string_view end : {"Fast", "Pil"}) {
    if (name.ends_with(end)) name.resize(name.size() - end.size());
  }
  const auto* found = std::ranges::find(classes, name, &ProcessorClass::name);
  if (found == std::end(classes)) {
    const std::vector<std::string> names = image_processor_names();
    (value ? value : keys.find("feature_extractor_type")).refuse_choice(names);
  }
  return *found;
}

/// Sets one tile unless the file or processor_class cuts images; InternVL's class ignores the file.
void apply_cropping(const HfKeys& keys, const std::string& processor, ImageSettings& settings) {
  auto* tiles = std::get_if<AspectTiles>(&settings.geometry);
  if (tiles == nullptr) return;
  const bool cut = keys.flag("crop_to_patches", false) || processor == "InternVLProcessor";
  if (!cut) tiles->most = 1;
}

ImageSettings settings_in(const HfKeys& keys, const std::string& processor) {
  const ProcessorClass& known = class_in(keys);
  ImageSettings settings;
  settings.filter = static_cast<ResampleFilter>(keys.size("resample", static_cast<std::int64_t>(known.filter), 0, 3));
  settings.mean = three_in(keys, "image_mean", known.clip_numbers ? clip_mean : halves);
  settings.deviation = three_in(keys, "image_std", known.clip_numbers ? clip_deviation : halves);
  settings.normalize = keys.flag("do_normalize", true);
  const double scale = keys.positive("rescale_factor", 1.0 / 255);
  if (!keys.flag("do_rescale", true)) {
    settings.scale.reset();
  } else {
    settings.scale = scale;
  }
  keys.require_flag("do_resize", true);
  keys.require_absent("pad_size");
  known.read(keys, settings);
  apply_cropping(keys, processor, settings);
  const bool hears = keys.find("image_processor_type") && keys.find("feature_extractor_type");
  keys.refuse_unknown([&](std::string_view key) { return has_no_effect(key) || (hears && is_of_sounds(key)); });
  return settings;
}

/// The text of a file with image settings, and the place of the settings in it.
struct SettingsText {
  std::filesystem::path file;
  std::string text;
  std::string processor;  // processor_class
  bool nested = false;    // under image_processor
};

/// Reads processor_class and whether the file has image_processor.
Status read_head(SettingsText& found) {
  const auto read = read_json(found.text, found.file.string(), ErrorCode::invalid_argument, [&](const JsonValue& root) {
    found.processor = root.find("processor_class").text(found.processor);
    found.nested = static_cast<bool>(root.find("image_processor"));
    return true;
  });
  return read ? Status() : Status(read.error());
}

Result<SettingsText> find_settings(const std::filesystem::path& folder) {
  SettingsText found;
  for (const char* name : {"processor_config.json", "preprocessor_config.json"}) {
    const std::filesystem::path file = folder / name;
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    const Result<std::string> text = read_text(file);
    if (!text) return text.error();
    found.file = file;
    found.text = *text;
    if (Status ok = read_head(found); !ok) return ok.error();
    if (found.nested || file.filename() == "preprocessor_config.json") return found;
  }
  return Error{ErrorCode::not_found, folder.string() + " has neither preprocessor_config.json nor a " +
                                         "processor_config.json with image_processor: its model reads no images"};
}

}  // namespace

std::vector<std::string> image_processor_names() {
  std::vector<std::string> names;
  for (const ProcessorClass& known : classes) names.emplace_back(known.name);
  return names;
}

Result<ImageSettings> read_image_settings(const std::filesystem::path& folder, PassOrder order) {
  const Result<SettingsText> found = find_settings(folder);
  if (!found) return found.error();
  const std::string name = found->file.string();
  return read_json(found->text, name, ErrorCode::invalid_argument, [&](const JsonValue& root) {
    ImageSettings settings = settings_in(HfKeys(found->nested ? root.at("image_processor") : root), found->processor);
    settings.origin = name;
    settings.order = order;
    return settings;
  });
}

}  // namespace maestro
