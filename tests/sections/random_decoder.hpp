// SPDX-License-Identifier: Apache-2.0
// Decoder shapes of every family with random fields, within the limits of the family's config.json.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sections/decoder/decoder_shape.hpp"

namespace maestro::testing {

/// Returns an LFM2 of these sizes: convolutions in every second layer from the first on, attention in the others.
inline DecoderConfig with_convolutions(const DecoderConfig& sizes) {
  DecoderConfig config = with_family(resolved(sizes), DecoderFamily::lfm2);
  config.conv_bias = true;
  std::vector<LayerMixer> layers(static_cast<std::size_t>(config.layers));
  for (std::size_t layer = 0; layer < layers.size(); layer += 2) layers[layer].kind = MixerKind::convolution;
  set_mixers(config, std::move(layers));
  return config;
}

/// A rule's results are small if a query and the keys are orthogonal, as by chance in small models, and the norm after
/// it would amplify their rounding, or a step of finite differences.
inline constexpr double delta_epsilon = 0.01;

/// Returns a Qwen3.5 of these sizes, dense or with experts: gated delta rules in every second layer from the first on.
inline DecoderConfig with_delta_rules(DecoderConfig sizes) {
  if (!has_delta_rules(sizes.family)) sizes.family = DecoderFamily::qwen3_5_text;
  sizes.head_size = 8;
  sizes.delta = {sizes.kv_heads, sizes.heads, 8, 5};
  sizes.norm_epsilon = delta_epsilon;
  DecoderConfig config = with_family(resolved(sizes), sizes.family);
  std::vector<LayerMixer> layers(static_cast<std::size_t>(config.layers));
  for (std::size_t layer = 0; layer < layers.size(); layer += 2) layers[layer].kind = MixerKind::delta;
  set_mixers(config, std::move(layers));
  return config;
}

/// Returns a DeepSeek of these sizes: a latent for queries and one for keys, values of another size, and experts.
inline DecoderConfig with_latents(DecoderConfig sizes) {
  sizes.kv_heads = sizes.heads;
  sizes.head_size = 12;
  sizes.latent = {.rank = 10, .query_rank = 6, .rope_size = 4, .value_size = 7};
  if (sizes.experts.count == 0) {
    sizes.experts.count = 4;
    sizes.experts.ffn = sizes.experts.shared_ffn = 8;
  }
  return with_family(resolved(sizes), sizes.family);
}

/// Returns a model of the sizes' family, with layers of several kinds if the family has them.
inline DecoderConfig with_kinds_of_layers(const DecoderConfig& sizes) {
  if (sizes.family == DecoderFamily::lfm2) return with_convolutions(sizes);
  if (has_latent_attention(sizes.family)) return with_latents(sizes);
  return has_delta_rules(sizes.family) ? with_delta_rules(sizes) : sizes;
}

/// Draws the fields that distinguish members of a family; sizes are from `base`, whose head size must be even.
class RandomDecoder {
 public:
  explicit RandomDecoder(unsigned seed) : random_(seed) {}

  DecoderConfig of(DecoderConfig base, DecoderFamily family) {
    using enum DecoderFamily;
    base.family = family;
    if (has_latent_attention(family)) make_latent(base);
    DecoderConfig config = resolved(base);
    if (family == gpt2) return with_family(config, family);
    const bool windowed_gemma = family == gemma2 || family == gemma3_text;
    const bool windows = family == mistral || family == phi3 || windowed_gemma || family == qwen3_moe ||
                         family == mixtral || family == gpt_oss;
    if (family != phi3 && family != olmoe && !has_latent_attention(family)) config.head_size = 2 * below(4) + 4;
    if (has_delta_rules(family)) config.head_size = 8 * below(3) + 8;
    if (family == glm4_moe) config.head_size = 4 * below(3) + 4;  // half of a head turns in pairs
    config.window = windows ? below(11) + 2 : 0;  // more than one token: otherwise query and key get no gradient
    config = with_family(config, family);
    config.rope_theta = 100.0 * (below(100) + 1);
    if (family == llama || family == smollm3) config.ffn_bias = below(2) == 1;
    if (has_experts(family)) add_experts(config);
    if (family == qwen2_moe) config.qkv_bias = below(2) == 1;
    const bool attention_bias = family != mistral && family != qwen2 && family != phi3 && family != lfm2 &&
                                family != qwen2_moe && family != mixtral && family != lfm2_moe;
    if (attention_bias) config.qkv_bias = config.out_bias = below(2) == 1;
    if (family == glm4_moe) {
      config.out_bias = false;
      if (below(2) == 1) config.qk_norm = QkNorm::head;
    }
    if (has_convolutions(family)) convolve(config);
    if (has_delta_rules(family)) add_delta_rules(config);
    if (family == phi3) {
      config.rope_share = 0.5;
    } else {
      scale(config);
    }
    if (family == qwen2 || family == qwen3 || family == dots1 || family == gpt_oss) alternate(config);
    if (has_latent_attention(family) && config.rope_scaling.kind == RotaryScaling::Kind::yarn) {
      config.rope_scaling.score_slope = 0.5;
    }
    if (family == deepseek_v3) config.latent.interleaved = below(2) == 1;
    if (windowed_gemma) {
      config.attention_scale = 1.0 / std::sqrt(static_cast<double>(below(9) + 20));
      if (family == gemma2) config.attention_softcap = below(2) * 1.5;  // applied by no other family
      config.logit_softcap = below(2) * 2.5;
    }
    return config;
  }

 private:
  std::int64_t below(std::int64_t end) { return std::uniform_int_distribution<std::int64_t>(0, end - 1)(random_); }
  void add_experts(DecoderConfig& config) {
    ExpertConfig& experts = config.experts;
    experts.count = below(5) + 2;
    experts.per_token = below(experts.count) + 1;
    experts.ffn = has_dense_layers(config.family) ? 4 * (below(3) + 1) : config.ffn;
    if (has_shared_expert(config.family)) experts.shared_ffn = 4 * (below(3) + 1);
    if (experts.router.kind == RouterKind::sigmoid) {
      experts.router.divided = below(2) == 1;
      // With a single expert the divided weight is 1 whatever its score: its gradient is only rounding.
      if (experts.router.divided) experts.per_token = std::max<std::int64_t>(experts.per_token, 2);
      experts.router.scale = 0.5 * static_cast<double>(below(3) + 1);
      if (counts_shared_experts(config.family)) {
        experts.shared_ffn = experts.ffn * (below(2) + 1);
        group(experts);
      } else {
        experts.score_bias = below(2) == 1;
      }
      if (below(2) == 1) experts.dense_layers = {0};
      return;
    }
    if (counts_shared_experts(config.family)) {
      experts.shared_ffn = experts.ffn * (below(2) + 1);
      experts.router.scale = 0.5 * static_cast<double>(below(3) + 1);
      if (below(2) == 1) experts.dense_layers = {0};
      return group(experts);
    }
    if (config.family == DecoderFamily::gpt_oss) {
      experts.gate_limit = 0.5 * static_cast<double>(below(4) + 1);
      experts.gate_alpha = 0.5 * static_cast<double>(below(4) + 1);
      // With a single expert the weight is 1 whatever its score: its gradient is only rounding.
      experts.per_token = std::max<std::int64_t>(experts.per_token, 2);
      return;
    }
    if (has_dense_layers(config.family) && below(2) == 1) experts.dense_layers = {below(config.layers)};
    if (below(2) == 1) experts.router.kind = RouterKind::chosen;
  }
  /// Sets keys for every head, with columns that turn, and values of another size.
  void make_latent(DecoderConfig& config) {
    const std::int64_t rope = 2 * below(3) + 2, nope = 2 * below(3) + 2;
    config.kv_heads = config.heads;
    config.head_size = rope + nope;
    config.latent = {.rank = below(8) + 4,
                     .query_rank = below(2) * (below(8) + 4),
                     .rope_size = rope,
                     .value_size = below(rope + nope) + 1};
  }
  /// Lets a token choose among the experts of one or two of two groups.
  void group(ExpertConfig& experts) {
    if (below(2) == 1) return;
    experts.count = 4 * (below(2) + 1);
    experts.router.groups = 2;
    experts.router.top_groups = below(2) + 1;
    experts.per_token = 2;
  }
  void scale(DecoderConfig& config) {
    RotaryScaling& scaling = config.rope_scaling;
    scaling.kind = static_cast<RotaryScaling::Kind>(below(4));
    if (scaling.kind == RotaryScaling::Kind::none) return;
    scaling.factor = static_cast<double>(below(8) + 2);
    if (scaling.kind != RotaryScaling::Kind::linear) scaling.original = static_cast<double>(config.positions / 2);
    if (scaling.kind == RotaryScaling::Kind::llama3) scaling.high = static_cast<double>(below(4) + 2);
    if (scaling.kind != RotaryScaling::Kind::yarn) return;
    scaling.beta_fast = 4;
    scaling.truncate = below(2) == 1;
    scaling.magnitude = 1.25;
  }
  /// Sets windows in random layers, in all, or in none.
  void alternate(DecoderConfig& config) {
    config.window = below(11) + 2;
    std::vector<LayerMixer> layers(static_cast<std::size_t>(config.layers));
    for (LayerMixer& layer : layers) layer.windowed = below(2) == 1;
    set_mixers(config, std::move(layers));
  }

  /// Sets convolutions in random layers, in all, or in none.
  void convolve(DecoderConfig& config) {
    config.conv_width = below(4) + 1;
    config.conv_bias = below(2) == 1;
    std::vector<LayerMixer> layers(static_cast<std::size_t>(config.layers));
    for (LayerMixer& layer : layers) layer.kind = below(3) == 0 ? MixerKind::attention : MixerKind::convolution;
    set_mixers(config, std::move(layers));
  }
  /// Sets delta rules in random layers, in all, or in none.
  void add_delta_rules(DecoderConfig& config) {
    config.conv_width = below(4) + 1;
    config.norm_epsilon = delta_epsilon;
    config.delta = {4 * (below(2) + 1), 8, below(9) + 4, below(9) + 1};
    std::vector<LayerMixer> layers(static_cast<std::size_t>(config.layers));
    for (LayerMixer& layer : layers) layer.kind = below(3) == 0 ? MixerKind::attention : MixerKind::delta;
    set_mixers(config, std::move(layers));
  }

  std::mt19937 random_;
};

}  // namespace maestro::testing
