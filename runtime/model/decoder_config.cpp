// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/decoder_config.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace maestro {

namespace {

constexpr NumberRange positive{.min = 0.0, .min_open = true};
// Far above any model, yet small enough that products of two sizes fit an int64.
constexpr Range size_range{.min = 1, .max = std::int64_t{1} << 31};
constexpr Range size_or_automatic{.min = 0, .max = size_range.max};

std::string setting(std::string_view key, std::int64_t value) {
  return std::string(key) + " = " + std::to_string(value);
}

/// Returns the divisor of `whole` that is nearest to `wanted`; the smaller if there are two.
std::int64_t nearest_divisor(std::int64_t whole, std::int64_t wanted) {
  std::int64_t best = 1;
  const auto consider = [&](std::int64_t divisor) {
    const auto distance = std::abs(divisor - wanted), best_distance = std::abs(best - wanted);
    if (distance < best_distance || (distance == best_distance && divisor < best)) best = divisor;
  };
  for (std::int64_t i = 1; i * i <= whole; ++i) {
    if (whole % i != 0) continue;
    consider(i);
    consider(whole / i);
  }
  return best;
}

void check_heads(const JobTable& section, const DecoderConfig& config) {
  if (config.head_size == 0 && config.width % config.heads != 0) {
    section.fail_among({"heads", "width"},
                       setting("heads", config.heads) + " does not divide " + setting("width", config.width) +
                           "; nearest that does: " + std::to_string(nearest_divisor(config.width, config.heads)));
  }
  const std::int64_t kv_heads = config.kv_heads == 0 ? config.heads : config.kv_heads;
  if (config.heads % kv_heads != 0) {
    section.fail_among({"kv_heads", "heads"},
                       setting("kv_heads", kv_heads) + " does not divide " + setting("heads", config.heads) +
                           "; nearest that does: " + std::to_string(nearest_divisor(config.heads, kv_heads)));
  }
  if (has_latent_attention(config.family) && kv_heads != config.heads) {
    section.fail_among({"kv_heads", "family"}, "family \"" + std::string(name_of(config.family)) +
                                                   "\" has keys for every head; leave kv_heads out");
  }
  if (config.gpt2() && kv_heads != config.heads) {
    section.fail_among({"kv_heads", "family"},
                       "family \"gpt2\" lacks grouped-query attention; leave kv_heads out or set family = \"llama\"");
  }
  const std::int64_t head_size = config.head_size == 0 ? config.width / config.heads : config.head_size;
  if (!config.gpt2() && head_size % 2 != 0) {
    section.fail_among({"heads", "width", "family"}, "rotary positions need an even head size, but " +
                                                         std::string(config.head_size == 0 ? "width / heads" : "it") +
                                                         " = " + std::to_string(head_size));
  }
  if (config.gpt2() && head_size * config.heads != config.width) {
    section.fail_among({"head_size", "family"}, "family \"gpt2\" has heads of width / heads = " +
                                                    std::to_string(config.width / config.heads) + " columns");
  }
}

void check_window(const JobTable& section, const DecoderConfig& config) {
  using enum DecoderFamily;
  constexpr std::array windowed{mistral, phi3, gemma2, gemma3_text, qwen3_moe, mixtral, gpt_oss};
  if (!section.has("window") || config.window == 0 || std::ranges::count(windowed, config.family) > 0) return;
  section.fail_among({"window", "family"},
                     "family \"" + std::string(name_of(config.family)) +
                         "\" lacks sliding windows; leave window out or set family = \"mistral\"");
}

constexpr std::int64_t most_router_groups = 32;  // as operators take

/// Returns the routers that a family's class has; config.json decides if there are several.
std::vector<RouterKind> router_kinds(DecoderFamily family) {
  using enum DecoderFamily;
  if (family == mixtral || family == qwen3_5_moe_text || family == gpt_oss) return {RouterKind::chosen};
  if (family == lfm2_moe || family == glm4_moe || family == dots1 || family == deepseek_v3) {
    return {RouterKind::sigmoid};
  }
  if (family == deepseek_v2) return {RouterKind::softmax};
  return {RouterKind::softmax, RouterKind::chosen};
}

/// Returns whether the family's class multiplies the weights of experts by a number.
bool scales_experts(DecoderFamily family) {
  return family == DecoderFamily::lfm2_moe || counts_shared_experts(family);
}

/// Checks a decoder with experts.
void check_router(const JobTable& section, const DecoderConfig& config) {
  const ExpertConfig& experts = config.experts;
  const RouteOptions& router = experts.router;
  const std::string family = "family \"" + std::string(name_of(config.family)) + "\"";
  if (router.scale != 1 && !scales_experts(config.family)) {
    section.fail_among({"router_scale", "family"}, family + " does not scale its experts; leave router_scale out");
  }
  if (!counts_shared_experts(config.family) && (router.groups > 1 || section.has("router_top_groups"))) {
    section.fail_among({"router_groups", "router_top_groups", "family"},
                       family + " has no groups of experts; leave router_groups out or set family = \"glm4_moe\"");
  }
  if (experts.count % router.groups != 0) {
    std::int64_t nearest = router.groups;
    while (experts.count % nearest != 0) --nearest;
    section.fail_among({"router_groups", "experts"}, setting("router_groups", router.groups) + " does not divide " +
                                                         setting("experts", experts.count) +
                                                         "; nearest that does: " + std::to_string(nearest));
  }
  if (router.top_groups > router.groups) {
    section.fail_among(
        {"router_top_groups", "router_groups"},
        setting("router_top_groups", router.top_groups) + " is above " + setting("router_groups", router.groups));
  }
  const std::int64_t open = experts.count / router.groups * router.top_groups;
  if (experts.per_token > open) {
    section.fail_among({"router_top_groups", "experts_per_token"},
                       setting("experts_per_token", experts.per_token) + " is above the " + std::to_string(open) +
                           " experts of " + setting("router_top_groups", router.top_groups) + " groups");
  }
}

void check_experts(const JobTable& section, const DecoderConfig& config) {
  const ExpertConfig& experts = config.experts;
  const std::string family = "family \"" + std::string(name_of(config.family)) + "\"";
  if (has_experts(config.family) != (experts.count > 0)) {
    section.fail_among({"experts", "family"},
                       experts.count > 0 ? family + " lacks experts; leave experts out or set family = \"qwen3_moe\""
                                         : family + " has experts; set experts, for example to 8");
  }
  for (const char* key :
       {"experts_per_token", "expert_ffn", "shared_ffn", "router", "dense_layers", "balance", "balance_weight",
        "bias_rate", "z_weight", "router_scale", "router_groups", "router_top_groups"}) {
    if (experts.count == 0 && section.has(key)) section.fail(key, "is without effect: the decoder lacks experts");
  }
  if (experts.count == 0) return;
  const std::vector<RouterKind> kinds = router_kinds(config.family);
  if (section.has("router") && std::ranges::count(kinds, experts.router.kind) == 0) {
    const auto quoted = [](RouterKind of) {
      return "\"" + std::string(router_kind_names[static_cast<std::size_t>(of)]) + "\"";
    };
    section.fail_among({"router", "family"}, family + " has no router " + quoted(experts.router.kind) +
                                                 "; set router = " + quoted(kinds.back()));
  }
  if (!has_dense_layers(config.family) && !experts.dense_layers.empty()) {
    section.fail_among({"dense_layers", "family"}, family + " has experts in every layer; leave dense_layers out");
  }
  if (std::ssize(experts.dense_layers) >= config.layers) {
    section.fail_among({"dense_layers", "layers"},
                       "no layer has experts; set dense_layers below " + setting("layers", config.layers));
  }
  if (!has_dense_layers(config.family) && section.has("ffn") && section.has("expert_ffn") &&
      experts.ffn != config.ffn) {
    section.fail_among({"ffn", "expert_ffn"}, family + " lacks dense networks; leave ffn out");
  }
  if (experts.per_token > experts.count) {
    section.fail_among({"experts_per_token", "experts"}, setting("experts_per_token", experts.per_token) +
                                                             " is above " + setting("experts", experts.count));
  }
  if (has_shared_expert(config.family) != (experts.shared_ffn > 0)) {
    section.fail_among({"shared_ffn", "family"},
                       experts.shared_ffn > 0
                           ? family + " lacks a shared expert; leave shared_ffn out or set family = \"qwen2_moe\""
                           : family + " has a shared expert; set shared_ffn to its columns");
  }
  if (counts_shared_experts(config.family) && (experts.ffn == 0 || experts.shared_ffn % experts.ffn != 0)) {
    section.fail_among({"shared_ffn", "expert_ffn"}, setting("shared_ffn", experts.shared_ffn) +
                                                         " is not a multiple of " + setting("expert_ffn", experts.ffn));
  }
  check_router(section, config);
}

/// Reads how a token chooses and weighs its experts.
void read_router(const JobTable& section, RouteOptions& router) {
  router.kind = section.choice("router", router.kind, router_kind_names,
                               {"how a token weighs its experts: by the softmax over all experts, or over the "
                                "chosen ones (mixtral, qwen3_5_moe_text, gpt_oss; qwen2_moe and qwen3_moe have "
                                "either); lfm2_moe, glm4_moe, dots1, deepseek_v3: by "
                                "sigmoids"});
  router.scale =
      section.number("router_scale", router.scale, positive,
                     {"factor of the experts' weights (lfm2_moe, glm4_moe, dots1, deepseek_v2, deepseek_v3)"});
  router.groups = section.integer("router_groups", router.groups, {.min = 1, .max = most_router_groups},
                                  {"groups of experts that follow one another (glm4_moe, dots1, deepseek_v2, "
                                   "deepseek_v3), a divisor of experts; 1: a token may choose any",
                                   "groups"});
  router.top_groups = section.integer("router_top_groups", router.top_groups, {.min = 1, .max = most_router_groups},
                                      {"best groups, whose experts a token may choose", "groups"});
}

/// Reads how a trained section keeps its experts' loads equal.
void read_balance(const JobTable& section, ExpertConfig& experts) {
  const LoadBalance balance = section.choice(
      "balance", LoadBalance::batch, load_balance_names,
      {"how a trained section keeps its experts' loads equal: by a loss that reads the step before, or each sample; by "
       "the scores' bias, the default of families that have one; or not"});
  const double weight =
      section.number("balance_weight", experts.balance_weight.value_or(1e-3), {.min = 0.0},
                     {"weight of the loss that keeps loads equal; with balance = \"bias\" absent: none"});
  const double rate = section.number("bias_rate", 1e-3, {.min = 0.0},
                                     {"change of the scores' bias in a step, with balance = \"bias\""});
  if (section.has("balance")) experts.balance = balance;
  if (section.has("balance_weight")) experts.balance_weight = weight;
  if (section.has("bias_rate")) experts.bias_rate = rate;
}

/// Reads the shape of expert layers; `defaults` come from stored weights or are empty.
void read_experts(const JobTable& section, DecoderConfig& out) {
  ExpertConfig& experts = out.experts;
  experts.count = section.integer("experts", experts.count, size_or_automatic,
                                  {"experts of a layer, for families with experts: olmoe, ...; 0: none", "experts"});
  experts.per_token = section.integer("experts_per_token", experts.per_token, size_range,
                                      {"experts that each token passes through", "experts"});
  experts.ffn =
      section.integer("expert_ffn", experts.ffn, size_or_automatic, {"columns of an expert; 0: as ffn", "columns"});
  experts.shared_ffn = section.integer("shared_ffn", experts.shared_ffn, size_or_automatic,
                                       {"columns of the expert that every token passes through (qwen2_moe, "
                                        "qwen3_5_moe_text, glm4_moe, dots1, deepseek_v2, deepseek_v3); 0: none",
                                        "columns"});
  const std::int64_t dense = section.integer(
      "dense_layers", std::ssize(experts.dense_layers), {.min = 0, .max = most_layers},
      {"first layers with a dense network (qwen2_moe, qwen3_moe, lfm2_moe, glm4_moe, dots1, deepseek_v2, deepseek_v3)",
       "layers"});
  read_router(section, experts.router);
  read_balance(section, experts);
  experts.z_weight = section.number("z_weight", experts.z_weight, {.min = 0.0},
                                    {"weight of a loss that keeps the router's scores small; 0: none"});
  if (section.has("dense_layers")) {
    experts.dense_layers.resize(static_cast<std::size_t>(dense));
    std::iota(experts.dense_layers.begin(), experts.dense_layers.end(), std::int64_t{0});
  }
  check_experts(section, out);
}

/// Makes every `interval`-th layer `special`, and the others `usual`.
void alternate(DecoderConfig& config, std::int64_t interval, LayerMixer special, LayerMixer usual) {
  std::vector<LayerMixer> all;
  for (std::int64_t layer = 1; layer <= config.layers; ++layer) all.push_back(layer % interval == 0 ? special : usual);
  set_mixers(config, std::move(all));
}

/// Reads the layers with attention of a family that has other layers too. `fresh`: without them, every third (lfm2) or
/// fourth (qwen3_5_text, qwen3_5_moe_text) has it.
void read_mixers(const JobTable& section, DecoderConfig& config, bool fresh) {
  const bool delta = has_delta_rules(config.family), mixed = delta || has_convolutions(config.family);
  const LayerMixer other{.kind = delta ? MixerKind::delta : MixerKind::convolution};
  const std::vector<std::int64_t> attention = section.integers(
      "attention_layers", {.min = 0, .max = most_layers - 1},
      {"the layers with attention, counted from 0, while all others have convolutions (lfm2, lfm2_moe) or gated delta "
       "rules (qwen3_5_text, qwen3_5_moe_text); absent: every third (lfm2, lfm2_moe) or fourth, or as in the weights"});
  const bool given = section.has("attention_layers");
  if (given && !mixed) {
    section.fail_among({"attention_layers", "family"}, "family \"" + std::string(name_of(config.family)) +
                                                           "\" has attention in every layer; leave attention_layers "
                                                           "out or set family = \"lfm2\"");
  }
  if (given) {
    std::vector<LayerMixer> all(static_cast<std::size_t>(config.layers), other);
    for (const std::int64_t layer : attention) {
      if (layer >= config.layers) {
        section.fail("attention_layers", "there is no layer " + std::to_string(layer) + "; " +
                                             setting("layers", config.layers) + " are counted from 0");
      }
      all[static_cast<std::size_t>(layer)] = {};
    }
    set_mixers(config, std::move(all));
  } else if (fresh && mixed) {
    alternate(config, delta ? 4 : 3, {}, other);
  }
  if (!config.mixers.empty() && std::ssize(config.mixers) != config.layers) {
    section.fail("layers", setting("layers", config.layers) + " differs from the " +
                               std::to_string(config.mixers.size()) + " layers of the weights; leave it out");
  }
}

/// Reads the heads of gated delta rules; `defaults` come from stored weights or are empty.
void read_delta(const JobTable& section, DecoderConfig& config) {
  DeltaShape& delta = config.delta;
  const auto read = [&](std::string_view key, std::int64_t& size, KeyHelp help) {
    size = section.integer(key, size, size_or_automatic, help);
    if (has_delta_rules(config.family) || !section.has(key)) return;
    section.fail_among({key, "family"}, "family \"" + std::string(name_of(config.family)) +
                                            "\" lacks gated delta rules; leave " + std::string(key) +
                                            " out or set family = \"qwen3_5_text\"");
  };
  read("delta_key_heads", delta.key_heads, {"qwen3_5_text: key heads of a gated delta rule; 0: as heads", "heads"});
  read("delta_value_heads", delta.value_heads,
       {"qwen3_5_text: value heads, a multiple of delta_key_heads; 0: as many", "heads"});
  read("delta_key_size", delta.key_size, {"qwen3_5_text: columns of a key head; 0: as attention's heads", "columns"});
  read("delta_value_size", delta.value_size, {"qwen3_5_text: columns of a value head; 0: delta_key_size", "columns"});
  if (delta.key_heads > 0 && delta.value_heads % delta.key_heads != 0) {
    section.fail_among({"delta_value_heads", "delta_key_heads"}, setting("delta_value_heads", delta.value_heads) +
                                                                     " is not a multiple of " +
                                                                     setting("delta_key_heads", delta.key_heads));
  }
}

/// Reads the sizes of latent attention; `defaults` come from stored weights or are empty.
void read_latent(const JobTable& section, DecoderConfig& config) {
  LatentConfig& latent = config.latent;
  const auto read = [&](std::string_view key, std::int64_t& size, KeyHelp help) {
    size = section.integer(key, size, size_or_automatic, help);
    if (has_latent_attention(config.family) || !section.has(key)) return;
    section.fail_among({key, "family"}, "family \"" + std::string(name_of(config.family)) +
                                            "\" lacks latent attention; leave " + std::string(key) +
                                            " out or set family = \"deepseek_v3\"");
  };
  read("key_latent", latent.rank,
       {"deepseek_v2, deepseek_v3: columns of the latent that all keys and values are made of; 0: four times the "
        "columns of a head that do not turn",
        "columns"});
  read("query_latent", latent.query_rank,
       {"deepseek_v2, deepseek_v3: columns of the latent that all queries are made of; 0: none", "columns"});
  read("rope_size", latent.rope_size, {"deepseek_v2, deepseek_v3: columns of a head that turn; 0: a third", "columns"});
  read("value_size", latent.value_size,
       {"deepseek_v2, deepseek_v3: columns of a value; 0: as many as do not turn in a head", "columns"});
}

void make_gemma(DecoderConfig& config) {
  config.norm_offset = 1;
  config.gelu_gate = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.width));
}

void make_windowed_gemma(DecoderConfig& config, std::int64_t global_interval) {
  make_gemma(config);
  config.norms = BlockNorms::both;
  if (config.window > 0) alternate(config, global_interval, {.windowed = false}, {.windowed = true});
}

void make_gpt_oss(DecoderConfig& config) {
  config.qkv_bias = config.out_bias = true;
  config.attention_sinks = true;
  config.experts.biases = true;
  config.experts.gate_limit = 7;
  config.experts.gate_alpha = 1.702;
  if (config.window > 0) alternate(config, 2, {.windowed = false}, {.windowed = true});
}

}  // namespace

std::optional<DecoderFamily> family_of(std::string_view name) {
  const auto* const found = std::ranges::find(decoder_family_names, name);
  if (found == decoder_family_names.end()) return std::nullopt;
  return static_cast<DecoderFamily>(found - decoder_family_names.begin());
}

bool has_dense_layers(DecoderFamily family) {
  using enum DecoderFamily;
  return !has_experts(family) || family == qwen2_moe || family == qwen3_moe || family == lfm2_moe ||
         counts_shared_experts(family);
}

bool has_experts(DecoderFamily family) {
  using enum DecoderFamily;
  return family == olmoe || family == qwen2_moe || family == qwen3_moe || family == mixtral || family == lfm2_moe ||
         family == qwen3_5_moe_text || family == gpt_oss || counts_shared_experts(family);
}

bool has_delta_rules(DecoderFamily family) {
  return family == DecoderFamily::qwen3_5_text || family == DecoderFamily::qwen3_5_moe_text;
}

bool has_shared_expert(DecoderFamily family) {
  return family == DecoderFamily::qwen2_moe || family == DecoderFamily::qwen3_5_moe_text ||
         counts_shared_experts(family);
}

bool counts_shared_experts(DecoderFamily family) {
  return family == DecoderFamily::glm4_moe || family == DecoderFamily::dots1 || has_latent_attention(family);
}

bool has_latent_attention(DecoderFamily family) {
  return family == DecoderFamily::deepseek_v2 || family == DecoderFamily::deepseek_v3;
}

double yarn_growth(double factor, double slope) {
  return factor <= 1 ? 1.0 : 0.1 * slope * std::log(factor) + 1.0;
}

bool is_further_layer(const DecoderConfig& config, std::string_view name) {
  constexpr std::string_view layers = "model.layers.";
  if (!counts_shared_experts(config.family)) return false;
  if (name.starts_with("mtp.")) return true;
  std::int64_t layer = -1;
  if (name.starts_with(layers)) std::from_chars(name.data() + layers.size(), name.data() + name.size(), layer);
  return layer >= config.layers;
}

bool has_convolutions(DecoderFamily family) {
  return family == DecoderFamily::lfm2 || family == DecoderFamily::lfm2_moe;
}

ExpertNames expert_names(DecoderFamily family) {
  if (family == DecoderFamily::mixtral) return {"block_sparse_moe", "w1", "w3", "w2", "mlp", ""};
  if (family == DecoderFamily::gpt_oss) return {.router = "router", .transposed = true};
  if (family == DecoderFamily::lfm2_moe) return {"feed_forward", "w1", "w3", "w2", "feed_forward", "expert_bias"};
  if (counts_shared_experts(family)) return {.bias = "gate.e_score_correction_bias", .shared = "shared_experts"};
  return {};
}

void set_mixers(DecoderConfig& config, std::vector<LayerMixer> layers) {
  if (std::ranges::none_of(layers, &LayerMixer::windowed)) config.window = 0;
  if (std::ranges::count(layers, LayerMixer{.windowed = config.window > 0}) == std::ssize(layers)) layers.clear();
  config.mixers = std::move(layers);
}

DecoderConfig with_family(DecoderConfig config, DecoderFamily family) {
  using enum DecoderFamily;
  config.family = family;
  if (family == gpt2) config.qkv_bias = config.out_bias = config.ffn_bias = true;
  if (family == qwen2 || family == qwen2_moe) config.qkv_bias = true;
  if (family == qwen3 || family == gemma3_text || family == qwen3_moe) config.qk_norm = QkNorm::head;
  if (family == olmoe) config.qk_norm = QkNorm::whole;
  if (family == phi3) config.fused_names = true;
  if (family == gemma) make_gemma(config);
  if (family == gemma2) {
    make_windowed_gemma(config, 2);
    config.attention_softcap = 50;
    config.logit_softcap = 30;
  }
  if (family == gemma3_text) {
    make_windowed_gemma(config, 6);
    config.local_rope_theta = 10000;
  }
  if (family == olmo2) {
    config.norms = BlockNorms::behind;
    config.qk_norm = QkNorm::whole;
  }
  if (family == smollm3) alternate(config, 4, {.rotary = false}, {.rotary = true});
  if (has_convolutions(family)) {
    config.qk_norm = QkNorm::head;
    config.lfm2_names = true;
    if (config.conv_width == 0) config.conv_width = 3;
  }
  if (has_delta_rules(family)) {
    config.qk_norm = QkNorm::head;
    config.norm_offset = 1;
    config.output_gate = true;
    config.rope_share = 0.25;
    if (config.conv_width == 0) config.conv_width = 4;
  }
  if (family == gpt_oss) make_gpt_oss(config);
  ExpertConfig& experts = config.experts;
  experts.shared_gate = has_shared_expert(family) && !counts_shared_experts(family);
  if (has_experts(family) && router_kinds(family).size() == 1) experts.router.kind = router_kinds(family).front();
  if (has_experts(family) && experts.router.kind == RouterKind::sigmoid) {
    experts.router.divided = experts.score_bias = true;
    if (family == lfm2_moe) experts.router.divisor_addend = 1e-6;
  }
  if (family == glm4_moe) config.rope_share = 0.5;
  if (family == dots1) config.qk_norm = QkNorm::head;
  if (has_latent_attention(family)) config.latent.interleaved = true;
  return config;
}

DecoderConfig read_decoder(const JobTable& section, DecoderConfig defaults) {
  DecoderConfig out = std::move(defaults);
  const DecoderFamily stored = out.family;
  out.family = section.choice("family", out.family, decoder_family_names,
                              {"gpt2 (layer norm, learned positions, GELU, biases), or a family with RMS norm, rotary "
                               "positions and a gated feed-forward network: llama, mistral, ..."});
  out.layers = section.integer("layers", out.layers, {.min = 1, .max = most_layers}, {"transformer layers", "layers"});
  out.width = section.integer("width", out.width, size_range, {"columns of the hidden state"});
  out.heads = section.integer("heads", out.heads, size_range, {"attention heads", "heads"});
  out.head_size = section.integer("head_size", out.head_size, size_or_automatic,
                                  {"columns of a head; 0: width / heads, as gpt2 requires", "columns"});
  out.kv_heads =
      section.integer("kv_heads", out.kv_heads, size_or_automatic,
                      {"key and value heads, a divisor of heads; 0: as many as heads, as gpt2 requires", "heads"});
  out.ffn = section.integer("ffn", out.ffn, size_or_automatic,
                            {"columns of the feed-forward network; 0: 4 x width (gpt2), 8/3 x width rounded up to 64 "
                             "(others)"});
  out.vocabulary = section.integer("vocabulary", out.vocabulary, {.min = 2, .max = size_range.max},
                                   {"rows of embedding and output layer; at least the corpus' tokens; without weights, "
                                    "an absent vocabulary is raised to them",
                                    "tokens"});
  out.positions = section.integer("positions", out.positions, size_range, {"the longest sequence", "tokens"});
  out.window = section.integer(
      "window", out.window, size_or_automatic,
      {"keys that a query sees in layers with a sliding window, including itself: all layers "
       "(mistral, phi3, qwen3_moe, mixtral), every second (gemma2, gpt_oss), five of six (gemma3_text); 0: no windows",
       "tokens"});
  out.tied = section.flag("tied", out.tied, {"the output layer shares the embedding"});
  out.rope_theta = section.number("rope_theta", out.rope_theta, positive, {"the base of rotary positions"});
  out.norm_epsilon = section.number("norm_epsilon", out.norm_epsilon, positive, {"the addend to a norm's denominator"});
  out.init_std =
      section.number("init_std", out.init_std, positive, {"the standard deviation of initial random values"});
  read_mixers(section, out, stored != out.family);
  check_heads(section, out);
  check_window(section, out);
  read_experts(section, out);
  read_delta(section, out);
  read_latent(section, out);
  return out;
}

}  // namespace maestro
