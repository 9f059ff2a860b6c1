// SPDX-License-Identifier: Apache-2.0
// The shape of a decoder, separate from config.hpp, so that only sections and readers of stored models parse it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/core/delta_shape.hpp"
#include "runtime/core/dtype.hpp"
#include "runtime/job/job_table.hpp"
#include "runtime/model/expert_config.hpp"

namespace maestro {

/// The maximum number of layers in a job or config.json: far above any model, yet few enough that such a configuration
/// takes little memory.
inline constexpr std::int64_t most_layers = 10000;

enum class DecoderFamily : std::uint8_t {
  gpt2,
  llama,
  mistral,
  qwen2,
  qwen3,
  phi3,
  gemma,
  gemma2,
  gemma3_text,
  olmo2,
  smollm3,
  lfm2,
  olmoe,
  qwen2_moe,
  qwen3_moe,
  mixtral,
  lfm2_moe,
  qwen3_5_text,
  qwen3_5_moe_text,
  glm4_moe,
  dots1,
  deepseek_v2,
  deepseek_v3,
  gpt_oss
};

/// Names of the families in order, as in model_type of config.json.
inline constexpr std::array<std::string_view, 24> decoder_family_names{
    "gpt2",        "llama",        "mistral",          "qwen2",    "qwen3", "phi3",        "gemma",       "gemma2",
    "gemma3_text", "olmo2",        "smollm3",          "lfm2",     "olmoe", "qwen2_moe",   "qwen3_moe",   "mixtral",
    "lfm2_moe",    "qwen3_5_text", "qwen3_5_moe_text", "glm4_moe", "dots1", "deepseek_v2", "deepseek_v3", "gpt_oss"};

[[nodiscard]] constexpr std::string_view name_of(DecoderFamily family) {
  return decoder_family_names[static_cast<std::size_t>(family)];
}
/// Returns the family with a name, or nothing.
[[nodiscard]] std::optional<DecoderFamily> family_of(std::string_view name);

/// The extension of rotary positions beyond the lengths of pre-training; "rope_scaling" and "rope_parameters" of
/// config.json.
struct RotaryScaling {
  enum class Kind : std::uint8_t {
    none,
    linear,   ///< every frequency is divided by `factor`
    llama3,   ///< low frequencies are divided, high ones are not; interpolated between `low` and `high` turns
    yarn,     ///< Peng et al. 2023: as llama3, between `beta_slow` and `beta_fast` turns in `original` positions
    longrope  ///< Ding et al. 2024: each frequency is divided by an entry of `factors`, which are for short samples
  };
  Kind kind = Kind::none;
  double factor = 1;
  double original = 0;  ///< pre-training positions: llama3, yarn, longrope
  double low = 1;
  double high = 4;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;         ///< yarn: the ramp's ends are rounded to column pairs
  double magnitude = 1;         ///< factor of cosines and sines: yarn, longrope
  double score_slope = 0;       ///< yarn: scores grow by yarn_growth(factor, score_slope)^2; 0: they do not
  std::vector<double> factors;  ///< divisors for each column pair: longrope
  bool operator==(const RotaryScaling&) const = default;
};

/// Returns the growth of the attention's temperature with the length (YaRN, Peng et al. 2023, eq. 22).
[[nodiscard]] double yarn_growth(double factor, double slope);

/// Latent attention (DeepSeek-V2, 2024, section 2.1); a head's queries and keys have DecoderConfig::head_size columns.
struct LatentConfig {
  std::int64_t rank = 0;        ///< columns of the keys' and values' latent; 0: attention is another
  std::int64_t query_rank = 0;  ///< columns of the queries' latent; 0: queries are products with the stream
  std::int64_t rope_size = 0;   ///< columns of a query or key that turn, the last ones
  std::int64_t value_size = 0;  ///< columns of a value
  bool interleaved = false;     ///< columns next to each other turn together
  [[nodiscard]] bool given() const { return rank > 0; }
  bool operator==(const LatentConfig&) const = default;
};

/// How a decoder reads rows of a memory, which another section looks up. Not a part of the model's config.json.
struct MemoryConfig {
  std::int64_t columns = 0;      ///< columns that the memory has for a token; 0: the decoder reads no memory
  std::int64_t orders = 0;       ///< rows between the terms of its filter
  std::int64_t layer = 0;        ///< layer that reads it before its mixer
  DType precision = DType::f32;  ///< dtype of the rows
  [[nodiscard]] bool given() const { return columns > 0; }
  [[nodiscard]] bool read_at(std::int64_t index) const { return given() && index == layer; }
  bool operator==(const MemoryConfig&) const = default;
};
/// Weights that read a memory have names with this prefix, and in a model's folder a file of their own: other programs
/// load the folder as a decoder without a memory.
inline constexpr std::string_view memory_prefix = "memory.";
inline constexpr std::string_view memory_file = "memory.safetensors";

enum class MixerKind : std::uint8_t {
  attention,
  convolution,  ///< gates before and after a filter over a channel's last rows (LFM2)
  delta         ///< a gated delta rule after such a filter (Qwen3.5)
};
/// What mixes the tokens of a layer, if layers differ.
struct LayerMixer {
  MixerKind kind = MixerKind::attention;
  bool windowed = false;  ///< a query sees DecoderConfig::window keys; attention only, as the next field
  bool rotary = true;
  bool operator==(const LayerMixer&) const = default;
};

enum class BlockNorms : std::uint8_t {
  before,  ///< each branch reads the normed stream
  behind,  ///< each branch's output is normed before it is added (OLMo 2)
  both     ///< norms before and after each branch (Gemma 2 and 3)
};
/// Rows that see rows after them, in samples with images; without images attention is causal.
enum class ImageMask : std::uint8_t {
  causal,  ///< none
  images,  ///< rows of an image see all rows of their image (Gemma 3)
  prefix   ///< rows before the first learned target see each other (PaliGemma, Beyer et al. 2024, section 3.1)
};
enum class QkNorm : std::uint8_t {
  none,
  head,  ///< RMS norm over each query and key head, with weights that the heads share
  whole  ///< RMS norm over all query columns and over all key columns
};

/// Shape of a decoder. The family determines the norms' kind, positions and feed-forward network: gpt2 has layer norm,
/// learned positions, GELU and biases; all others have RMS norm, rotary positions, a gated feed-forward network and
/// grouped-query attention, and differ in the fields after init_std (with_family() presets them).
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
  bool out_bias = false;  ///< bias of the attention's output
  bool ffn_bias = false;
  QkNorm qk_norm = QkNorm::none;
  BlockNorms norms = BlockNorms::before;
  double norm_offset = 0;    ///< addend to every norm's weights (Gemma: 1)
  bool gelu_gate = false;    ///< GEGLU with tanh GELU; false: SwiGLU
  bool fused_names = false;  ///< qkv_proj and gate_up_proj are stored as one tensor each (Phi-3)
  double embedding_scale = 1;
  double attention_scale = 0;    ///< factor of scores; 0: 1 / sqrt(head_size)
  double attention_softcap = 0;  ///< 0: none
  double logit_softcap = 0;      ///< 0: none
  double rope_share = 1;         ///< share of a head's columns that are rotated, from the first on
  RotaryScaling rope_scaling;
  double local_rope_theta = 0;  ///< theta in windowed layers, unscaled (Gemma 3); 0: all layers have the same positions
  std::int64_t window = 0;      ///< keys that a query in a windowed layer sees, including itself; 0: no windows
  std::vector<LayerMixer> mixers;  ///< mixers by layer; empty: attention, all rotary and, with a window, windowed
  /// Rotated column pairs that turn by time, row and column (Qwen2-VL, Wang et al. 2024, section 2.1); empty: by time.
  std::vector<std::int64_t> rope_sections;
  bool rope_interleaved = false;  ///< the kinds of pairs alternate (Qwen3-VL); false: they stand one after another
  ImageMask image_mask = ImageMask::causal;
  std::int64_t conv_width = 0;  ///< rows that a convolution's filter covers, including its own; LFM2, Qwen3.5
  bool conv_bias = false;       ///< biases of a convolution's filter and of the products before and after it
  bool lfm2_names = false;      ///< norms and projections are stored under LFM2's names rather than Llama's
  ExpertConfig experts;
  DeltaShape delta;     ///< heads of a gated delta rule; sizes of 0: as attention's (resolved())
  LatentConfig latent;  ///< latents in all layers; sizes of 0 follow from head_size (resolved())
  MemoryConfig memory;
  bool attention_sinks = false;  ///< each head's softmax has a trained term in its denominator
  bool output_gate = false;  ///< attention's result is times sigmoid(gate), which q_proj computes next to the queries

  [[nodiscard]] bool gpt2() const { return family == DecoderFamily::gpt2; }
  /// Returns the columns of all query heads; needs a resolved shape, as key_columns().
  [[nodiscard]] std::int64_t query_columns() const { return heads * head_size; }
  [[nodiscard]] std::int64_t key_columns() const { return kv_heads * head_size; }
  /// Returns the columns of attention's result.
  [[nodiscard]] std::int64_t result_columns() const { return heads * (latent.given() ? latent.value_size : head_size); }
  /// Returns the columns of a head that turn by its position.
  [[nodiscard]] std::int64_t rotated_columns() const {
    if (latent.given()) return latent.rope_size;
    return static_cast<std::int64_t>(static_cast<double>(head_size) * rope_share);
  }
  /// Returns whether positions in samples with images need marks (Corpus::read_marks()).
  [[nodiscard]] bool needs_marks() const { return !rope_sections.empty() || image_mask != ImageMask::causal; }
  /// Returns the columns of a mixer's first product in layers with a gated delta rule: q, k, v, z, b and a.
  [[nodiscard]] std::int64_t delta_columns() const {
    return delta.qkv_columns() + delta.value_columns() + 2 * delta.value_heads;
  }
  [[nodiscard]] std::int64_t ffn_matrices() const { return gpt2() ? 2 : 3; }
  [[nodiscard]] LayerMixer mixer_of(std::int64_t layer) const {
    if (mixers.empty()) return {.windowed = window > 0};
    return mixers[static_cast<std::size_t>(layer)];
  }
  bool operator==(const DecoderConfig&) const = default;
};

/// Returns whether a family's layers are mixtures of experts.
[[nodiscard]] bool has_experts(DecoderFamily family);
/// Returns whether a family's layers may have convolutions.
[[nodiscard]] bool has_convolutions(DecoderFamily family);
/// Returns whether a family's layers may have gated delta rules.
[[nodiscard]] bool has_delta_rules(DecoderFamily family);
/// Returns whether a family's attention is latent.
[[nodiscard]] bool has_latent_attention(DecoderFamily family);
/// Returns whether every token also passes through a shared expert in the family's layers.
[[nodiscard]] bool has_shared_expert(DecoderFamily family);
/// Returns whether a shared expert has the columns of several experts, whose number config.json states.
[[nodiscard]] bool counts_shared_experts(DecoderFamily family);
/// Returns whether a layer of the family may have a dense feed-forward network.
[[nodiscard]] bool has_dense_layers(DecoderFamily family);
/// Returns the names of its expert layers.
[[nodiscard]] ExpertNames expert_names(DecoderFamily family);

/// Sets `family` and the fields that it determines. Without `mixers`, all layers have attention.
[[nodiscard]] DecoderConfig with_family(DecoderConfig config, DecoderFamily family);

/// Returns whether a stored name is of layers after the last, which predict further tokens and are passed over.
[[nodiscard]] bool is_further_layer(const DecoderConfig& config, std::string_view name);

/// Sets mixers, which is empty if all `layers` are equal, rotary attention, and sets window to 0 if none is windowed.
void set_mixers(DecoderConfig& config, std::vector<LayerMixer> layers);

/// Reads the shape keys of a decoder directly from the section's table. kv_heads, ffn and head_size = 0 stay unchanged:
/// the decoder resolves them.
[[nodiscard]] DecoderConfig read_decoder(const JobTable& section, DecoderConfig defaults = {});

}  // namespace maestro
