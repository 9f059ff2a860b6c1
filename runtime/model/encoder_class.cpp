// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/encoder_class.hpp"

#include <array>

#include "runtime/model/decoder_config.hpp"

namespace maestro {

namespace {

struct GeluName {
  std::string_view name;
  GeluKind kind;
};
// The first name of a kind is written. The first three compute the same function.
constexpr GeluName gelu_names[] = {{"gelu_pytorch_tanh", GeluKind::tanh},
                                   {"gelu_new", GeluKind::tanh},
                                   {"gelu_fast", GeluKind::tanh},
                                   {"gelu", GeluKind::erf},
                                   {"quick_gelu", GeluKind::quick}};

/// Keys that do not change an encoder's features: pooling, image settings, keys of other models.
bool has_no_effect(std::string_view key) {
  constexpr std::array<std::string_view, 13> names{"dropout",
                                                   "encoder_no_repeat_ngram_size",
                                                   "hidden_dropout_prob",
                                                   "initializer_factor",
                                                   "logit_scale_init_value",
                                                   "max_image_size",
                                                   "model_type",
                                                   "num_image_tokens",
                                                   "projection_dim",
                                                   "projector_hidden_act",
                                                   "size",
                                                   "vision_use_head",
                                                   "vocab_size"};
  return ignored_hf_key(key) || std::ranges::find(names, key) != names.end();
}

/// Reads the side of a square: a number, or a list with the same height and width.
std::int64_t read_side(const HfKeys& keys, std::string_view key, std::int64_t absent,
                       std::int64_t most = HfKeys::most_size) {
  const JsonValue value = keys.find(key);
  if (!value || !value.json().is_array()) return keys.size(key, absent, 1, most);
  const std::vector<JsonValue> sides = value.items();
  if (sides.size() != 2) value.expected("a number, or a height and a width");
  const std::int64_t side = sides[0].whole_number(1, most);
  if (sides[1].whole_number(1, most) != side) value.refuse("is not a square, which is not supported");
  return side;
}

void read_variants(const HfKeys& keys, VisionConfig& config) {
  keys.require_text("norm_type", "layer_norm", {"layer_norm", "rms_norm"});
  config.rms_norm = keys.find("norm_type").json() == "rms_norm";
  config.qkv_bias = keys.flag("attention_bias", false);
  config.branch_scale = keys.positive("layer_scale_init_value", 0.1);
  config.last_norm = !keys.flag("use_mean_pooling", true);
  keys.require_flag("use_mask_token", false);
  keys.require_flag("use_absolute_position_embeddings", true);
  config.head_norms = keys.flag("use_qk_norm", false);
  constexpr double of_head_norms = 1e-6;
  if (config.head_norms && config.norm_epsilon != of_head_norms) {
    keys.find("layer_norm_eps").refuse("with use_qk_norm = true is not supported; only 1e-06 is");
  }
}

}  // namespace

GeluKind read_gelu(const HfKeys& keys, std::string_view key, GeluKind absent) {
  std::vector<std::string> names;
  for (const GeluName& each : gelu_names) names.emplace_back(each.name);
  keys.require_text(key, name_of(absent), names);
  if (!keys.find(key)) return absent;
  return std::ranges::find(gelu_names, keys.find(key).text(), &GeluName::name)->kind;
}

std::string_view name_of(GeluKind kind) {
  return std::ranges::find(gelu_names, kind, &GeluName::kind)->name;
}

VisionConfig read_encoder(const HfKeys& keys, const EncoderClass& defaults) {
  keys.require_absent("quantization_config");
  if (keys.size("num_channels", 3) != 3) keys.find("num_channels").refuse("is not supported; only 3 is");
  VisionConfig config;
  config.stored = true;
  config.activation = read_gelu(keys, "hidden_act", defaults.activation);
  config.layers = keys.size("num_hidden_layers", defaults.layers, 1, most_layers);
  config.width = keys.size("hidden_size", defaults.width);
  config.heads = keys.size("num_attention_heads", defaults.heads);
  config.ffn = keys.size("intermediate_size", defaults.ffn);
  config.patch = read_side(keys, "patch_size", defaults.patch);
  config.norm_epsilon = keys.positive("layer_norm_eps", defaults.norm_epsilon);
  config.init_std = keys.positive("initializer_range", 0.02);
  config.class_row = defaults.class_row;
  config.pre_norm = defaults.pre_norm;
  config.patch_bias = defaults.patch_bias;
  if (defaults.variants) read_variants(keys, config);
  if (config.width % config.heads != 0) {
    keys.fail("num_attention_heads",
              std::to_string(config.heads) + " does not divide the width " + std::to_string(config.width));
  }
  return config;
}

void read_square_table(const HfKeys& keys, const EncoderClass& defaults, VisionConfig& config) {
  constexpr std::int64_t most_side = std::int64_t{1} << 20;
  const std::int64_t side = read_side(keys, "image_size", defaults.image, most_side) / config.patch;
  if (side < 1) keys.fail("image_size", "smaller than patch_size = " + std::to_string(config.patch));
  config.max_patches = side * side;
  config.columns = side;
}

std::vector<std::int64_t> read_layers(const HfKeys& keys, std::string_view key, std::int64_t layers,
                                      std::vector<std::int64_t> absent) {
  const JsonValue list = keys.find(key);
  if (!list) {
    std::erase_if(absent, [&](std::int64_t layer) { return layer >= layers; });
    return absent;
  }
  std::vector<std::int64_t> found;
  for (const JsonValue& layer : list.items()) {
    found.push_back(layer.whole_number(0, layers - 1));
    if (found.size() > 1 && found.back() <= found[found.size() - 2]) layer.refuse("is not above the layer before it");
  }
  return found;
}

void refuse_unknown_encoder_keys(const HfKeys& keys) {
  keys.refuse_unknown(has_no_effect);
}

}  // namespace maestro
