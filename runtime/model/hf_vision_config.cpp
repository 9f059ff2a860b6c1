// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_vision_config.hpp"

#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_keys.hpp"

namespace maestro {

namespace {

constexpr const char* tanh_gelu = "gelu_pytorch_tanh";
constexpr const char* own_encoder = "maestro_vision";
constexpr const char* own_projector = "maestro_projector";

void read_positions(const HfKeys& keys, VisionConfig& config) {
  keys.require_text("position_tables", "learned", {"learned", "2d"});
  config.positions = keys.find("position_tables").json() == "2d" ? PatchPositions::grid : PatchPositions::learned;
  if (config.positions == PatchPositions::grid) {
    config.max_grid = keys.size("max_grid");
    return;
  }
  if (keys.find("max_patches")) {
    config.max_patches = keys.size("max_patches");
    if (keys.find("table_columns")) config.columns = keys.size("table_columns");
    return;
  }
  const std::int64_t side = keys.size("image_size", 224) / config.patch;
  if (side < 1) keys.fail("image_size", "smaller than patch_size = " + std::to_string(config.patch));
  config.max_patches = side * side;
  config.columns = side;
}

VisionConfig encoder_of(const HfKeys& keys) {
  keys.require_text("hidden_act", tanh_gelu, {tanh_gelu, "gelu_new", "gelu_fast"});
  keys.require_absent("quantization_config");
  if (keys.size("num_channels", 3) != 3) keys.find("num_channels").refuse("is not supported; only 3 is");
  VisionConfig config;
  config.stored = true;
  config.layers = keys.size("num_hidden_layers", 12, 1, most_layers);
  config.width = keys.size("hidden_size", 768);
  config.heads = keys.size("num_attention_heads", 12);
  config.ffn = keys.size("intermediate_size", 3072);
  config.patch = keys.size("patch_size", 16);
  config.norm_epsilon = keys.positive("layer_norm_eps", 1e-6);
  config.init_std = keys.positive("initializer_range", 0.02);
  if (config.width % config.heads != 0) {
    keys.fail("num_attention_heads",
              std::to_string(config.heads) + " does not divide the width " + std::to_string(config.width));
  }
  read_positions(keys, config);
  return config;
}

VisionConfig vision_of(const HfKeys& keys) {
  keys.require_text("model_type", "(none)", {"siglip_vision_model", "siglip", own_encoder});
  return encoder_of(keys.find("model_type").text() == "siglip" ? keys.inside("vision_config") : keys);
}

std::int64_t width_in(const HfKeys& keys, std::string_view part) {
  const HfKeys inside = keys.inside(part);
  return inside.find("hidden_size") ? inside.size("hidden_size") : 0;
}

/// Refuses a LLaVA unless its projector takes all features of the last layer. Absent keys have the library's defaults,
/// except in files that earlier versions of this program wrote.
void check_features(const HfKeys& keys) {
  const bool of_maestro = !keys.inside("vision_config").has("model_type") && !keys.find("vision_feature_layer") &&
                          !keys.find("vision_feature_select_strategy");
  if (of_maestro) return;
  const JsonValue layer = keys.find("vision_feature_layer");
  if (layer.json() != -1) layer.refuse("is not supported; only the last layer, -1, is");
  keys.require_text("vision_feature_select_strategy", "default", {"full"});
}

ProjectorConfig projector_of(const HfKeys& keys) {
  keys.require_text("model_type", "(none)", {"llava", own_projector});
  keys.require_text("projector_hidden_act", "gelu", {tanh_gelu, "gelu_new", "gelu_fast"});
  keys.require_flag("multimodal_projector_bias", true);
  keys.require_absent("quantization_config");
  ProjectorConfig config;
  if (keys.find("model_type").text() == "llava") {
    check_features(keys);
    config.of_llava = static_cast<bool>(keys.find("vision_feature_layer"));
  }
  config.vision_width = width_in(keys, "vision_config");
  config.width = width_in(keys, "text_config");
  config.init_std = keys.positive("initializer_range", 0.02);
  return config;
}

}  // namespace

Result<VisionConfig> parse_hf_vision_config(std::string_view text, std::string_view where) {
  return parse_hf_keys(text, where, vision_of);
}

Result<ProjectorConfig> parse_hf_projector_config(std::string_view text, std::string_view where) {
  return parse_hf_keys(text, where, projector_of);
}

Result<VisionConfig> read_hf_vision_config(const std::filesystem::path& path) {
  const auto found = read_hf_config_text(path);
  return found ? parse_hf_vision_config(found->text, found->file) : found.error();
}

Result<ProjectorConfig> read_hf_projector_config(const std::filesystem::path& path) {
  const auto found = read_hf_config_text(path);
  return found ? parse_hf_projector_config(found->text, found->file) : found.error();
}

std::string hf_vision_config_text(const VisionConfig& config) {
  const bool grid = config.positions == PatchPositions::grid;
  const bool siglip = !grid && config.columns > 0 && config.columns * config.columns == config.max_patches;
  nlohmann::ordered_json out;
  if (siglip) out["architectures"] = {"SiglipVisionModel"};
  out["model_type"] = siglip ? "siglip_vision_model" : own_encoder;
  out["hidden_act"] = tanh_gelu;
  out["num_hidden_layers"] = config.layers;
  out["hidden_size"] = config.width;
  out["num_attention_heads"] = config.heads;
  out["intermediate_size"] = config.ffn != 0 ? config.ffn : 4 * config.width;
  out["num_channels"] = 3;
  out["patch_size"] = config.patch;
  out["layer_norm_eps"] = config.norm_epsilon;
  out["initializer_range"] = config.init_std;
  out["attention_dropout"] = 0.0;
  out["vision_use_head"] = false;
  if (grid) {
    out["position_tables"] = "2d";
    out["max_grid"] = config.max_grid;
  } else if (siglip) {
    out["image_size"] = config.columns * config.patch;
  } else {
    out["max_patches"] = config.max_patches;
    if (config.columns > 0) out["table_columns"] = config.columns;
  }
  out["torch_dtype"] = "float32";
  return out.dump(2) + "\n";
}

std::string hf_projector_config_text(const ProjectorConfig& config) {
  nlohmann::ordered_json out;
  out["model_type"] = own_projector;
  out["projector_hidden_act"] = tanh_gelu;
  out["multimodal_projector_bias"] = true;
  out["initializer_range"] = config.init_std;
  out["vision_config"] = {{"hidden_size", config.vision_width}};
  out["text_config"] = {{"hidden_size", config.width}};
  return out.dump(2) + "\n";
}

}  // namespace maestro
