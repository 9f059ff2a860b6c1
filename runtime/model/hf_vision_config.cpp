// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_vision_config.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "runtime/model/encoder_class.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_keys.hpp"
#include "runtime/model/vision_part.hpp"

namespace maestro {

namespace {

constexpr const char* own_encoder = "maestro_vision";
constexpr const char* own_projector = "maestro_projector";

constexpr std::array<std::string_view, 5> position_names{"learned", "2d", "interpolated", "none", "sinusoids"};
constexpr std::array<std::string_view, 3> norm_names{"none", "before_join", "after_join"};

/// Returns the value whose name a key holds; the first if it is absent.
template <class Enum>
Enum read_name(const HfKeys& keys, std::string_view key, std::span<const std::string_view> names) {
  keys.require_text(key, names.front(), {names.begin(), names.end()});
  const std::string name = keys.find(key).text(std::string(names.front()));
  return static_cast<Enum>(std::ranges::find(names, name) - names.begin());
}

void read_positions(const HfKeys& keys, VisionConfig& config) {
  config.positions = read_name<PatchPositions>(keys, "position_tables", position_names);
  if (config.positions == PatchPositions::none) return;
  if (config.positions == PatchPositions::grid) {
    config.max_grid = keys.size("max_grid");
    return;
  }
  if (!keys.find("max_patches")) return read_square_table(keys, siglip_class, config);
  config.max_patches = keys.size("max_patches");
  if (keys.find("table_columns")) config.columns = keys.size("table_columns");
}

/// A member that only maestro_vision has, and its key; an absent key means the default of VisionConfig.
template <class Value>
struct OwnMember {
  const char* key;
  Value VisionConfig::*member;
  [[nodiscard]] bool usual(const VisionConfig& config) const { return config.*member == VisionConfig().*member; }
};
constexpr OwnMember<bool> own_flags[] = {{"class_row", &VisionConfig::class_row},
                                         {"pre_norm", &VisionConfig::pre_norm},
                                         {"last_norm", &VisionConfig::last_norm},
                                         {"patch_bias", &VisionConfig::patch_bias},
                                         {"whole_tiles", &VisionConfig::whole_tiles},
                                         {"rms_norm", &VisionConfig::rms_norm},
                                         {"gated", &VisionConfig::gated},
                                         {"fused_qkv", &VisionConfig::fused_qkv},
                                         {"head_norms", &VisionConfig::head_norms},
                                         {"qkv_bias", &VisionConfig::qkv_bias},
                                         {"key_bias", &VisionConfig::key_bias},
                                         {"fixed_positions", &VisionConfig::fixed_positions}};
constexpr OwnMember<std::int64_t> own_sizes[] = {
    {"times", &VisionConfig::times}, {"window", &VisionConfig::window}, {"mels", &VisionConfig::mels}};
constexpr OwnMember<double> own_numbers[] = {{"rope_theta", &VisionConfig::rope_theta},
                                             {"branch_scale", &VisionConfig::branch_scale}};
constexpr OwnMember<std::vector<std::int64_t>> own_layers[] = {{"full_layers", &VisionConfig::full_layers},
                                                               {"taps", &VisionConfig::taps}};

void read_own_members(const HfKeys& keys, VisionConfig& config) {
  const VisionConfig absent;
  for (const auto& own : own_flags) config.*own.member = keys.flag(own.key, absent.*own.member);
  for (const auto& own : own_sizes) {
    const std::int64_t usual = absent.*own.member;  // the least
    config.*own.member = keys.size(own.key, usual, usual);
  }
  for (const auto& own : own_numbers) {
    if (keys.find(own.key)) config.*own.member = keys.positive(own.key, 1);
  }
  for (const auto& own : own_layers) config.*own.member = read_layers(keys, own.key, config.layers);
  config.layers_run = keys.size("layers_run", 0, 0, config.layers);
}

/// Writes the members that are not as in a SigLIP. Returns whether there are some.
bool write_own_members(const VisionConfig& config, nlohmann::ordered_json& out) {
  const std::size_t before = out.size();
  const auto write = [&](const auto& members) {
    for (const auto& own : members) {
      if (!own.usual(config)) out[own.key] = config.*own.member;
    }
  };
  write(own_flags);
  write(own_sizes);
  write(own_numbers);
  write(own_layers);
  if (config.run_layers() != config.layers) out["layers_run"] = config.layers_run;
  return out.size() > before;
}

VisionConfig encoder_of(const HfKeys& keys) {
  VisionConfig config = read_encoder(keys, siglip_class);
  if (keys.find("model_type").json() == own_encoder) read_own_members(keys, config);
  read_positions(keys, config);
  refuse_unknown_encoder_keys(keys);
  return config;
}

VisionConfig vision_of(const HfKeys& keys) {
  std::vector<std::string> types{std::string(siglip_class.type), "siglip", own_encoder};
  std::ranges::copy(vision_part_types(), std::back_inserter(types));  // parsed by parse_vision_part()
  refuse_own_code(keys);
  keys.require_text("model_type", "(none)", types);
  return encoder_of(keys.find("model_type").text() == "siglip" ? keys.inside("vision_config") : keys);
}

std::int64_t width_in(const HfKeys& keys, std::string_view part) {
  const HfKeys inside = keys.inside(part);
  return inside.find("hidden_size") ? inside.size("hidden_size") : 0;
}

ProjectorConfig projector_of(const HfKeys& keys) {
  std::vector<std::string> types{own_projector};
  std::ranges::copy(vision_part_types(), std::back_inserter(types));
  refuse_own_code(keys);
  keys.require_text("model_type", "(none)", types);
  keys.require_absent("quantization_config");
  ProjectorConfig config;
  config.activation = read_gelu(keys, "projector_hidden_act", GeluKind::tanh);
  config.biases = keys.flag("multimodal_projector_bias", true);
  config.vision_width = width_in(keys, "vision_config");
  config.width = width_in(keys, "text_config");
  config.init_std = keys.positive("initializer_range", 0.02);
  config.join = keys.size("join", 1, 1, 1 << 16);
  config.products = keys.size("products", 2, 1, 2);
  config.tile_rows = keys.size("tile_rows", 0, 0);
  config.newline = keys.flag("newline", false);
  config.hidden = keys.size("hidden", 0, 0);
  config.norm = read_name<FeatureNorm>(keys, "norm", norm_names);
  config.rms_norm = keys.flag("rms_norm", false);
  config.norm_epsilon = keys.positive("norm_epsilon", config.norm_epsilon);
  if (keys.find("norm_offset")) config.norm_offset = keys.positive("norm_offset", 0);
  config.taps = keys.size("taps", 0, 0, most_taps);
  config.pool = keys.size("pool", 1, 1, 1 << 16);
  config.transposed = keys.flag("transposed", false);
  config.drops_rest = keys.flag("drops_rest", false);
  config.sounds = keys.flag("sounds", false);
  keys.refuse_unknown([](std::string_view key) {
    return ignored_hf_key(key) || key == "vision_config" || key == "text_config" || key == "tie_word_embeddings";
  });
  return config;
}

/// Returns whether an earlier version of this program wrote a projector under the name llava.
bool is_own_llava(std::string_view text, std::string_view where) {
  const auto own = parse_hf_keys(text, where, [](const HfKeys& keys) {
    const nlohmann::json& vision = keys.find("vision_config").json();
    return vision.size() == 1 && vision.contains("hidden_size") && !keys.find("vision_feature_layer");
  });
  return own && *own;
}

}  // namespace

std::string_view name_of(PatchPositions positions) {
  return position_names[static_cast<std::size_t>(positions)];
}

Result<VisionConfig> parse_hf_vision_config(std::string_view text, std::string_view where, Modality modality) {
  const auto type = hf_model_type(text, where);
  if (!type || !has_vision_part(*type)) return parse_hf_keys(text, where, vision_of);
  const auto part = parse_vision_part(text, where, modality);
  return part ? Result<VisionConfig>(part->encoder) : part.error();
}

Result<ProjectorConfig> parse_hf_projector_config(std::string_view text, std::string_view where, Modality modality) {
  const auto type = hf_model_type(text, where);
  if (!type || !has_vision_part(*type) || (*type == "llava" && is_own_llava(text, where)))
    return parse_hf_keys(text, where, projector_of);
  const auto part = parse_vision_part(text, where, modality);
  return part ? Result<ProjectorConfig>(part->projector) : part.error();
}

Result<VisionConfig> read_hf_vision_config(const std::filesystem::path& path, Modality modality) {
  const auto found = read_hf_config_text(path);
  return found ? parse_hf_vision_config(found->text, found->file, modality) : found.error();
}

Result<ProjectorConfig> read_hf_projector_config(const std::filesystem::path& path, Modality modality) {
  const auto found = read_hf_config_text(path);
  return found ? parse_hf_projector_config(found->text, found->file, modality) : found.error();
}

Modality modality_of_config(std::string_view text) {
  const auto sounds = parse_hf_keys(text, "the section's config.json",
                                    [](const HfKeys& keys) { return keys.find("mels") || keys.flag("sounds", false); });
  return sounds && *sounds ? Modality::sound : Modality::image;
}

std::string hf_vision_config_text(const VisionConfig& config) {
  const bool table = config.positions == PatchPositions::learned;
  const bool square = table && config.columns > 0 && config.columns * config.columns == config.max_patches;
  nlohmann::ordered_json own = nlohmann::ordered_json::object();
  const bool siglip = !write_own_members(config, own) && square;
  nlohmann::ordered_json out;
  if (siglip) out["architectures"] = {"SiglipVisionModel"};
  out["model_type"] = siglip ? siglip_class.type : own_encoder;
  out["hidden_act"] = name_of(config.activation);
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
  out.update(own);
  if (!table) out["position_tables"] = name_of(config.positions);
  if (config.positions == PatchPositions::grid) {
    out["max_grid"] = config.max_grid;
  } else if (siglip) {
    out["image_size"] = config.columns * config.patch;
  } else if (config.positions != PatchPositions::none) {
    out["max_patches"] = config.max_patches;
    if (config.columns > 0) out["table_columns"] = config.columns;
  }
  out["torch_dtype"] = "float32";
  return out.dump(2) + "\n";
}

std::string hf_projector_config_text(const ProjectorConfig& config) {
  nlohmann::ordered_json out;
  out["model_type"] = own_projector;
  out["projector_hidden_act"] = name_of(config.activation);
  out["multimodal_projector_bias"] = config.biases;
  out["initializer_range"] = config.init_std;
  const ProjectorConfig usual;
  if (config.join != usual.join) out["join"] = config.join;
  if (config.products != usual.products) out["products"] = config.products;
  if (config.tile_rows != usual.tile_rows) out["tile_rows"] = config.tile_rows;
  if (config.newline) out["newline"] = true;
  if (config.hidden != usual.hidden) out["hidden"] = config.hidden;
  if (config.norm != usual.norm) {
    out["norm"] = norm_names[static_cast<std::size_t>(config.norm)];
    out["rms_norm"] = config.rms_norm;
    out["norm_epsilon"] = config.norm_epsilon;
    if (config.norm_offset != 0) out["norm_offset"] = config.norm_offset;
  }
  if (config.taps != usual.taps) out["taps"] = config.taps;
  if (config.pool != usual.pool) out["pool"] = config.pool;
  if (config.transposed) out["transposed"] = true;
  if (config.drops_rest) out["drops_rest"] = true;
  if (config.sounds) out["sounds"] = true;
  out["vision_config"] = {{"hidden_size", config.vision_width}};
  out["text_config"] = {{"hidden_size", config.width}};
  return out.dump(2) + "\n";
}

}  // namespace maestro
