// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/native_encoder.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/model/decoder_config.hpp"
#include "runtime/model/encoder_class.hpp"

namespace maestro {

namespace {

constexpr std::int64_t most_blocks = 1 << 8;

/// Keys without an effect on still images.
bool has_no_effect(std::string_view key) {
  return ignored_hf_key(key) || key == "initializer_range" || key == "tokens_per_second" ||
         key == "spatial_patch_size" || key == "init_std";
}

void check_type(const HfKeys& keys, const NativeEncoder& defaults) {
  const std::string type(defaults.type);
  keys.require_text("model_type", type, {type, std::string(defaults.old_type)});
}

void check_channels(const HfKeys& keys) {
  for (const char* key : {"in_channels", "in_chans"}) {
    if (keys.size(key, 3) != 3) keys.find(key).refuse("is not supported; only 3 is");
  }
}

double read_theta(const HfKeys& keys) {
  constexpr double usual = 10000;
  if (!keys.find("rope_parameters")) return usual;
  const HfKeys rope = keys.inside("rope_parameters");
  for (const char* key : {"rope_type", "type"}) rope.require_text(key, "axial", {"axial"});
  const double theta = rope.positive("rope_theta", usual);
  rope.refuse_unknown([](std::string_view) { return false; });
  return theta;
}

void read_positions(const HfKeys& keys, const NativeEncoder& defaults, VisionConfig& config) {
  config.rope_theta = read_theta(keys);
  config.positions = PatchPositions::none;
  if (defaults.table == 0) return;
  config.positions = PatchPositions::interpolated;
  config.max_patches = keys.size("num_position_embeddings", defaults.table);
  config.columns = std::llround(std::sqrt(static_cast<double>(config.max_patches)));
  if (config.columns * config.columns != config.max_patches) {
    keys.find("num_position_embeddings").refuse("is not supported; only a square number is");
  }
}

void read_windows(const HfKeys& keys, const NativeEncoder& defaults, std::int64_t block, VisionConfig& config) {
  if (defaults.window == 0) return;
  const std::int64_t blocks = keys.size("window_size", defaults.window) / (block * config.patch);
  if (blocks < 1) {
    keys.fail("window_size", "smaller than a block of patches, " + std::to_string(block * config.patch) + " pixels");
  }
  config.window = blocks * block;
  config.full_layers = read_layers(keys, "fullatt_block_indexes", config.layers,
                                   {defaults.full_layers.begin(), defaults.full_layers.end()});
}

void read_taps(const HfKeys& keys, const NativeEncoder& defaults, VisionPart& part) {
  if (!defaults.taps) return;
  const std::vector<std::int64_t> usual{8, 16, 24};
  constexpr const char* key = "deepstack_visual_indexes";
  part.encoder.taps = read_layers(keys, key, part.encoder.layers, usual);
  if (!keys.find(key) && part.encoder.taps != usual) {
    keys.fail(
        key, "is absent, and its default, 8, 16, 24, is beyond the " + std::to_string(part.encoder.layers) + " layers");
  }
  part.projector.taps = std::ssize(part.encoder.taps);
  if (part.projector.taps > most_taps) {
    keys.find(key).refuse("lists more than " + std::to_string(most_taps) + " layers, which is not supported");
  }
}

std::int64_t read_ffn(const HfKeys& keys, const NativeEncoder& defaults, std::int64_t width) {
  if (defaults.ffn > 0) return keys.size("intermediate_size", defaults.ffn);
  constexpr std::int64_t usual = 4, most = 1 << 10;
  return width * keys.size("mlp_ratio", usual, 1, most);
}

}  // namespace

void read_native_encoder(const HfKeys& keys, const NativeEncoder& defaults, std::int64_t text_width, VisionPart& part) {
  keys.require_absent("quantization_config");
  check_type(keys, defaults);
  check_channels(keys);
  VisionConfig& config = part.encoder;
  config.stored = true;
  config.fused_qkv = !defaults.separate_qkv;
  config.last_norm = false;
  config.gated = defaults.gated;
  config.rms_norm = defaults.rms_norm;
  config.patch_bias = defaults.patch_bias;
  config.activation = defaults.activation;
  if (defaults.gated) {
    keys.require_text("hidden_act", "silu", {"silu"});
  } else {
    config.activation = read_gelu(keys, "hidden_act", defaults.activation);
  }
  config.layers = keys.size("depth", defaults.layers, 1, most_layers);
  config.width = keys.size(defaults.width_key, defaults.width);
  config.heads = keys.size("num_heads", 16);
  config.ffn = read_ffn(keys, defaults, config.width);
  config.patch = keys.size("patch_size", defaults.patch);
  config.times = keys.size("temporal_patch_size", 2, 1, most_blocks);
  config.norm_epsilon = 1e-6;
  constexpr std::int64_t halves = 4;  // a pair of columns turns, half of the pairs by each axis
  if (config.width % (halves * config.heads) != 0) {
    keys.fail("num_heads", std::to_string(config.heads) + " heads divide the width " + std::to_string(config.width) +
                               " into parts that are not multiples of " + std::to_string(halves));
  }
  const std::int64_t block = keys.size("spatial_merge_size", 2, 1, most_blocks);
  read_positions(keys, defaults, config);
  read_windows(keys, defaults, block, config);
  ProjectorConfig& projector = part.projector;
  projector.vision_width = config.width;
  projector.width = text_width;
  projector.join = block * block;
  projector.hidden = projector.join * config.width;
  projector.activation = GeluKind::erf;
  projector.norm = FeatureNorm::before_join;
  projector.rms_norm = config.rms_norm;
  read_taps(keys, defaults, part);
  constexpr std::int64_t usual_out = 3584;
  if (const std::int64_t out = keys.size(defaults.out_key, usual_out); out != text_width) {
    keys.fail(defaults.out_key,
              std::to_string(out) + " differs from the language model's width, " + std::to_string(text_width));
  }
  if (!keys.json().is_null()) keys.refuse_unknown(has_no_effect);
}

}  // namespace maestro
