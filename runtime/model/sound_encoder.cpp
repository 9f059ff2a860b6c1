// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/sound_encoder.hpp"

#include <algorithm>
#include <array>

#include "runtime/model/decoder_config.hpp"
#include "runtime/model/encoder_class.hpp"

namespace maestro {

namespace {

constexpr double torch_epsilon = 1e-5;  // torch.nn.LayerNorm's

/// Keys that do not change a pass without dropout. transformers' encoder keeps scale_embedding without applying it.
bool has_no_effect_on_hearing(std::string_view key) {
  constexpr std::array<std::string_view, 6> names{"dropout",   "encoder_layerdrop", "init_std",
                                                  "layerdrop", "scale_embedding",   "vocab_size"};
  return ignored_hf_key(key) || std::ranges::find(names, key) != names.end();
}

/// Reads sizes that only restate others.
void check_heads(const HfKeys& keys, const SoundEncoder& defaults, const VisionConfig& config) {
  if (config.width % config.heads != 0) {
    keys.fail(defaults.heads_key,
              std::to_string(config.heads) + " does not divide the width " + std::to_string(config.width));
  }
  const std::int64_t columns = config.width / config.heads;
  if (keys.size("head_dim", columns) != columns) {
    keys.find("head_dim").refuse("is not supported; only " + std::to_string(columns) + " is");
  }
  if (keys.size("num_key_value_heads", config.heads) != config.heads) {
    keys.find("num_key_value_heads").refuse("is not supported; only " + std::to_string(config.heads) + " is");
  }
}

/// Reads how a sound is cut into chunks, which the encoder sees separately.
void read_chunks(const HfKeys& keys, const SoundEncoder& defaults, std::int64_t text_width, VisionPart& part) {
  if (defaults.chunk == 0) return;
  part.chunk_rows = keys.size("n_window", defaults.chunk);
  if (part.chunk_rows % 2 != 0) keys.find("n_window").refuse("is not supported; only an even number is");
  if (part.chunk_rows > part.encoder.max_patches) {
    keys.fail("n_window", std::to_string(part.chunk_rows) + " is more than max_source_positions, " +
                              std::to_string(part.encoder.max_patches));
  }
  if (part.encoder.width % 2 != 0 || part.encoder.width < 4) {
    keys.find(defaults.width_key).refuse("is not supported; only an even number from 4 on is");
  }
  constexpr std::int64_t usual_out = 3584;
  if (const std::int64_t out = keys.size(defaults.out_key, usual_out); out != text_width) {
    keys.fail(defaults.out_key,
              std::to_string(out) + " differs from the language model's width, " + std::to_string(text_width));
  }
  if (keys.size("num_hidden_layers", part.encoder.layers) != part.encoder.layers) {
    keys.find("num_hidden_layers").refuse("contradicts " + std::string(defaults.layers_key));
  }
}

/// Sets the rows that the projector takes.
void set_rows(const HfKeys& keys, const SoundEncoder& defaults, VisionPart& part) {
  VisionConfig& config = part.encoder;
  ProjectorConfig& projector = part.projector;
  part.whole_clips = config.last_norm = defaults.whole_clips;
  projector.sounds = true;
  if (!defaults.whole_clips) {
    projector.pool = 2;
    projector.drops_rest = true;
    projector.norm = FeatureNorm::before_join;
    projector.norm_epsilon = torch_epsilon;
    projector.products = 1;
    return;
  }
  projector.activation = GeluKind::erf;
  projector.biases = false;
  projector.join = config.ffn / config.width;
  if (config.ffn % config.width != 0 || config.max_patches % projector.join != 0) {
    keys.fail(defaults.ffn_key, std::to_string(config.ffn) + " columns do not hold a part of a clip's " +
                                    std::to_string(config.max_patches) + " rows, side by side");
  }
}

}  // namespace

void read_sound_encoder(const HfKeys& keys, const SoundEncoder& defaults, std::int64_t text_width, VisionPart& part) {
  const std::string type(defaults.type);
  keys.require_text("model_type", type, {type});
  keys.require_absent("quantization_config");
  VisionConfig& config = part.encoder;
  config.stored = true;
  config.fixed_positions = defaults.stored_positions;
  if (!defaults.stored_positions) config.positions = PatchPositions::sinusoids;
  config.key_bias = false;
  config.mels = keys.size("num_mel_bins", defaults.mels);
  config.layers = keys.size(defaults.layers_key, defaults.layers, 1, most_layers);
  config.width = keys.size(defaults.width_key, defaults.width);
  config.heads = keys.size(defaults.heads_key, defaults.heads);
  config.ffn = keys.size(defaults.ffn_key, defaults.ffn);
  config.max_patches = keys.size("max_source_positions", defaults.positions);
  config.columns = 1;
  config.activation = read_gelu(keys, "activation_function", GeluKind::erf);
  config.init_std = keys.positive("initializer_range", config.init_std);
  config.norm_epsilon = torch_epsilon;
  check_heads(keys, defaults, config);
  part.projector.vision_width = config.width;
  part.projector.width = text_width;
  set_rows(keys, defaults, part);
  read_chunks(keys, defaults, text_width, part);
  if (!keys.json().is_null()) keys.refuse_unknown(has_no_effect_on_hearing);
}

}  // namespace maestro
