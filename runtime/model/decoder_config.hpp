// SPDX-License-Identifier: Apache-2.0
// The shape of a decoder, apart from config.hpp so that only sections and the readers of stored models parse it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/job/job_table.hpp"

namespace maestro {

/// Layers of a model at most, of a job and of a config.json: far above any model, and few enough that a configuration
/// of so many takes little memory.
inline constexpr std::int64_t most_layers = 10000;

enum class DecoderFamily : std::uint8_t {
  gpt2,
  llama,
  mistral,
  qwen2,
  qwen3,
  phi3,
  gemma2,
  gemma3_text,
  olmo2,
  smollm3
};

/// Names of the families in their order, as model_type of config.json spells them.
inline constexpr std::array<std::string_view, 10> decoder_family_names{
    "gpt2", "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3_text", "olmo2", "smollm3"};

[[nodiscard]] constexpr std::string_view name_of(DecoderFamily family) {
  return decoder_family_names[static_cast<std::size_t>(family)];
}
/// Returns the family of a name, or nothing.
[[nodiscard]] std::optional<DecoderFamily> family_of(std::string_view name);

/// How rotary positions reach beyond the lengths of pre-training; "rope_scaling" and "rope_parameters" of config.json.
struct RotaryScaling {
  enum class Kind : std::uint8_t {
    none,
    linear,   ///< every frequency is divided by `factor`
    llama3,   ///< low frequencies are, high frequencies are not, between `low` and `high` turns by interpolation
    yarn,     ///< Peng et al. 2023: the same between `beta_slow` and `beta_fast` turns in `original` positions
    longrope  ///< Ding et al. 2024: each frequency is divided by its own of `factors`, those of short samples
  };
  Kind kind = Kind::none;
  double factor = 1;
  double original = 0;  ///< positions of pre-training: llama3, yarn, longrope
  double low = 1;
  double high = 4;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;         ///< yarn: the ends of the ramp are rounded to whole pairs of columns
  double magnitude = 1;         ///< of cosines and sines: yarn, longrope
  std::vector<double> factors;  ///< longrope, for each pair of columns
  bool operator==(const RotaryScaling&) const = default;
};

/// The attention of a layer, where layers differ.
struct LayerAttention {
  bool windowed = false;  ///< a query sees DecoderConfig::window keys
  bool rotary = true;
  bool operator==(const LayerAttention&) const = default;
};

enum class BlockNorms : std::uint8_t {
  before,  ///< each branch is of the normed stream
  behind,  ///< each branch is normed before it is added (OLMo 2)
  both     ///< Gemma 2 and 3
};
enum class QkNorm : std::uint8_t {
  none,
  head,  ///< RMS norm over each query and key head, with weights that the heads share
  whole  ///< over all query columns and all key columns
};

/// Shape of a decoder. The family determines the norms' kind, positions and feed-forward network: gpt2 has layer norm,
/// learned positions, GELU and biases; all others have RMS norm, rotary positions, a gated feed-forward network and
/// grouped-query attention, and differ in the fields behind init_std (with_family() presets them).
struct DecoderConfig {
  DecoderFamily family = DecoderFamily::gpt2;
  std::int64_t layers = 4;
  std::int64_t width = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;  ///< 0: as many as heads
  std::int64_t ffn = 0;       ///< 0: 4 x width (gpt2), 8/3 x width rounded up to 64 (others)
  std::int64_t vocabulary = 256;
  std::int64_t positions = 1024;  ///< longest sequence
  bool tied = true;               ///< output layer shares the embedding
  double rope_theta = 10000.0;
  double norm_epsilon = 1e-5;
  double init_std = 0.02;

  std::int64_t head_size = 0;  ///< 0: width / heads
  bool qkv_bias = false;
  bool out_bias = false;  ///< of the attention's output
  bool ffn_bias = false;
  QkNorm qk_norm = QkNorm::none;
  BlockNorms norms = BlockNorms::before;
  double norm_offset = 0;    ///< added to every norm's weights (Gemma: 1)
  bool gelu_gate = false;    ///< GEGLU with tanh GELU; false: SwiGLU
  bool fused_names = false;  ///< qkv_proj and gate_up_proj are stored as a tensor each (Phi-3)
  double embedding_scale = 1;
  double attention_scale = 0;    ///< of scores; 0: 1 / sqrt(head_size)
  double attention_softcap = 0;  ///< 0: none
  double logit_softcap = 0;      ///< 0: none
  double rope_share = 1;         ///< of a head's columns that are rotated, from the first on
  RotaryScaling rope_scaling;
  double local_rope_theta = 0;  ///< of windowed layers, unscaled (Gemma 3); 0: all layers have the same positions
  std::int64_t window = 0;      ///< keys that a query of a windowed layer sees, its own included; 0: none
  std::vector<LayerAttention> layer_attention;  ///< by layer; empty: all rotary and, with a window, windowed

  [[nodiscard]] bool gpt2() const { return family == DecoderFamily::gpt2; }
  /// Columns of all query heads, and of all key heads; only of a resolved shape.
  [[nodiscard]] std::int64_t query_columns() const { return heads * head_size; }
  [[nodiscard]] std::int64_t key_columns() const { return kv_heads * head_size; }
  [[nodiscard]] std::int64_t ffn_matrices() const { return gpt2() ? 2 : 3; }
  [[nodiscard]] LayerAttention attention_of(std::int64_t layer) const {
    if (layer_attention.empty()) return {window > 0, true};
    return layer_attention[static_cast<std::size_t>(layer)];
  }
  bool operator==(const DecoderConfig&) const = default;
};

/// Sets `family` and the fields that it determines.
[[nodiscard]] DecoderConfig with_family(DecoderConfig config, DecoderFamily family);

/// Sets layer_attention, empty where `layers` are all the same and rotary, and window to 0 where no layer is windowed.
void set_layer_attention(DecoderConfig& config, std::vector<LayerAttention> layers);

/// Reads the shape keys of a decoder, flat in the section's table. kv_heads, ffn and head_size = 0 stay as they are:
/// the decoder resolves them.
[[nodiscard]] DecoderConfig read_decoder(const JobTable& section, DecoderConfig defaults = {});

}  // namespace maestro
