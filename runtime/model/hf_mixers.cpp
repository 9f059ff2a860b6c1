// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_mixers.hpp"

#include <cmath>
#include <utility>

namespace maestro {

std::vector<JsonValue> entries_of_layers(const JsonValue& list, const DecoderConfig& config, const char* entries) {
  if (!list.json().is_array() || list.json().size() != static_cast<std::size_t>(config.layers)) {
    list.expected("a list of " + std::to_string(config.layers) + " " + entries);
  }
  return list.items();
}

std::int64_t read_lfm2_ffn(const HfKeys& keys) {
  const std::int64_t given = keys.aliased_size("intermediate_size", "block_ff_dim");
  const bool null = keys.has("block_ffn_dim_multiplier") && !keys.find("block_ffn_dim_multiplier");
  const double multiplier = keys.positive("block_ffn_dim_multiplier", 1);
  const std::int64_t multiple = keys.size("block_multiple_of", 256);
  if (!keys.flag("block_auto_adjust_ff_dim", true)) return given;
  const double two_thirds = std::floor(2.0 * static_cast<double>(given) / 3.0);
  const double scaled = null ? two_thirds : std::floor(multiplier * two_thirds);
  if (scaled < 1 || scaled > static_cast<double>(HfKeys::most_size)) {
    keys.fail("block_auto_adjust_ff_dim", "makes " + shown(scaled) + " columns of " + std::to_string(given));
  }
  const auto columns = static_cast<std::int64_t>(scaled);
  return null ? columns : (columns + multiple - 1) / multiple * multiple;
}

namespace {

/// Reads the kinds of LFM2's layers: layer_types, or the numbers of the layers with attention.
void read_lfm2_layers(const HfKeys& keys, DecoderConfig& config) {
  constexpr LayerMixer convolution{.kind = MixerKind::convolution};
  const JsonValue types = keys.find("layer_types"), numbers = keys.find("full_attn_idxs");
  std::vector<LayerMixer> layers(static_cast<std::size_t>(config.layers), numbers ? convolution : LayerMixer{});
  if (numbers) {
    if (!numbers.json().is_array()) numbers.expected("a list of layers, counted from 0");
    for (const JsonValue& number : numbers.items()) {
      layers[static_cast<std::size_t>(number.whole_number(0, config.layers - 1, {}))] = {};
    }
  }
  if (types) {
    std::vector<LayerMixer> named;
    for (const JsonValue& type : entries_of_layers(types, config, "names")) {
      if (type.json() != "conv" && type.json() != "full_attention") {
        type.refuse("is not supported; these are: conv, full_attention");
      }
      named.push_back(type.json() == "conv" ? convolution : LayerMixer{});
    }
    if (numbers && named != layers) numbers.refuse("contradicts layer_types; remove one");
    layers = std::move(named);
  }
  set_mixers(config, std::move(layers));
}

void read_convolutions(const HfKeys& keys, DecoderConfig& config) {
  config.conv_width = keys.size("conv_L_cache", 3);
  config.conv_bias = keys.flag("conv_bias", false);
  read_lfm2_layers(keys, config);
}

/// Reads keys of LFM2 alone. Published files also have keys that the class ignores: if such a key names a size or a
/// setting, it must have the value that the class uses.
void read_lfm2(const HfKeys& keys, DecoderConfig& config) {
  const auto equals = [&](const char* key, std::int64_t wanted, const char* of) {
    if (keys.size(key, wanted) != wanted) {
      keys.find(key).refuse("is not supported; only the value of " + std::string(of) + ", " + std::to_string(wanted) +
                            ", is");
    }
  };
  for (const char* key : {"block_dim", "conv_dim", "conv_dim_out"}) equals(key, config.width, "hidden_size");
  equals("num_heads", config.heads, "num_attention_heads");
  if (keys.positive("block_norm_eps", config.norm_epsilon) != config.norm_epsilon) {
    keys.find("block_norm_eps").refuse("contradicts norm_eps, which the class uses");
  }
  if (keys.positive("theta", config.rope_theta) != config.rope_theta) {
    keys.find("theta").refuse("contradicts rope_theta, which the class uses");
  }
  for (const char* flag : {"block_use_swiglu", "use_pos_enc"}) keys.require_flag(flag, true);
  // Of fresh values.
  for (const char* key :
       {"block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init"}) {
    (void)keys.find(key);
  }
}

/// Reads the kinds of Qwen3.5's layers: layer_types, or attention in every `full_attention_interval`-th.
void read_qwen3_5_layers(const HfKeys& keys, DecoderConfig& config) {
  constexpr LayerMixer delta{.kind = MixerKind::delta};
  const std::int64_t interval = keys.size("full_attention_interval", 4);
  std::vector<LayerMixer> layers;
  if (const JsonValue types = keys.find("layer_types")) {
    for (const JsonValue& type : entries_of_layers(types, config, "names")) {
      if (type.json() != "linear_attention" && type.json() != "full_attention") {
        type.refuse("is not supported; these are: linear_attention, full_attention");
      }
      layers.push_back(type.json() == "linear_attention" ? delta : LayerMixer{});
    }
  } else {
    for (std::int64_t i = 1; i <= config.layers; ++i) layers.push_back(i % interval == 0 ? LayerMixer{} : delta);
  }
  set_mixers(config, std::move(layers));
}

/// Reads what only Qwen3.5 has. Published files also have keys that the class does not read.
void read_qwen3_5(const HfKeys& keys, DecoderConfig& config) {
  config.conv_width = keys.size("linear_conv_kernel_dim", 4);
  config.delta = {.key_heads = keys.size("linear_num_key_heads", 16),
                  .value_heads = keys.size("linear_num_value_heads", 32),
                  .key_size = keys.size("linear_key_head_dim", 128),
                  .value_size = keys.size("linear_value_head_dim", 128)};
  if (config.delta.value_heads % config.delta.key_heads != 0) {
    keys.fail("linear_num_value_heads",
              std::to_string(config.delta.value_heads) +
                  " is not a multiple of linear_num_key_heads = " + std::to_string(config.delta.key_heads));
  }
  read_qwen3_5_layers(keys, config);
  keys.require_flag("attn_output_gate", true);
  keys.require_text("mamba_ssm_dtype", "float32", {"float32"});
  // Layers that predict further tokens, which the class passes over.
  for (const char* key : {"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"}) (void)keys.find(key);
}

}  // namespace

void read_hf_mixers(const HfKeys& keys, DecoderConfig& config) {
  if (has_convolutions(config.family)) read_convolutions(keys, config);
  if (config.family == DecoderFamily::lfm2) read_lfm2(keys, config);
  if (has_delta_rules(config.family)) read_qwen3_5(keys, config);
}

void write_hf_mixers(const DecoderConfig& config, nlohmann::ordered_json& out) {
  if (has_convolutions(config.family)) {
    for (std::int64_t i = 0; i < config.layers; ++i) {
      out["layer_types"].push_back(config.mixer_of(i).kind == MixerKind::convolution ? "conv" : "full_attention");
    }
    out["conv_L_cache"] = config.conv_width;
    out["conv_bias"] = config.conv_bias;
    if (config.family == DecoderFamily::lfm2)
      out["block_auto_adjust_ff_dim"] = false;  // intermediate_size is the size itself
  }
  if (has_delta_rules(config.family)) {
    for (std::int64_t i = 0; i < config.layers; ++i) {
      const bool delta = config.mixer_of(i).kind == MixerKind::delta;
      out["layer_types"].push_back(delta ? "linear_attention" : "full_attention");
    }
    out["linear_conv_kernel_dim"] = config.conv_width;
    out["linear_num_key_heads"] = config.delta.key_heads;
    out["linear_num_value_heads"] = config.delta.value_heads;
    out["linear_key_head_dim"] = config.delta.key_size;
    out["linear_value_head_dim"] = config.delta.value_size;
  }
}

}  // namespace maestro
