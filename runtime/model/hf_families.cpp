// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_families.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/model/hf_experts.hpp"
#include "runtime/model/hf_latent.hpp"
#include "runtime/model/hf_mixers.hpp"

namespace maestro {

namespace {

using Keys = HfKeys;
using nlohmann::json;
using nlohmann::ordered_json;

/// Defaults of a family's configuration class that differ from LlamaConfig.
struct Family {
  DecoderFamily family;
  const char* architecture;
  double norm_epsilon = 1e-6;
  std::int64_t positions = 2048;
  std::int64_t head_size = 0;  ///< 0: width / heads
  std::int64_t kv_heads = 0;   ///< 0: as many as heads
  bool tied = false;
  bool attention_bias = false;       ///< the class has this key, for q, k, v and output
  bool bias_without_output = false;  ///< attention_bias is for q, k and v only
  bool ffn_bias = false;             ///< the class has mlp_bias
  bool score_cap = false;            ///< the class applies attn_logit_softcapping
  bool gelu = false;                 ///< the gate is a GELU if the key of the activation is absent
  bool gelu_is_tanh = false;         ///< "gelu" names the approximation by tanh, too
  /// Key that names the gate's activation; null: the class lacks it and always applies SiLU.
  const char* activation = "hidden_act";
  const char* epsilon = "rms_norm_eps";  ///< key of the norms' epsilon
  RotaryForm rotary{};
};

constexpr Family families[] = {
    {.family = DecoderFamily::llama, .architecture = "LlamaForCausalLM", .attention_bias = true, .ffn_bias = true},
    {.family = DecoderFamily::mistral, .architecture = "MistralForCausalLM", .positions = 131072, .kv_heads = 8},
    {.family = DecoderFamily::qwen2, .architecture = "Qwen2ForCausalLM", .positions = 32768, .kv_heads = 32},
    {.family = DecoderFamily::qwen3,
     .architecture = "Qwen3ForCausalLM",
     .positions = 32768,
     .head_size = 128,
     .kv_heads = 32,
     .attention_bias = true},
    {.family = DecoderFamily::phi3,
     .architecture = "Phi3ForCausalLM",
     .norm_epsilon = 1e-5,
     .positions = 4096,
     .rotary = {.partial = true, .original = 4096, .longrope_alone = true}},
    {.family = DecoderFamily::gemma,
     .architecture = "GemmaForCausalLM",
     .positions = 8192,
     .head_size = 256,
     .kv_heads = 16,
     .tied = true,
     .attention_bias = true,
     .gelu = true,
     .gelu_is_tanh = true},
    {.family = DecoderFamily::gemma2,
     .architecture = "Gemma2ForCausalLM",
     .positions = 8192,
     .head_size = 256,
     .kv_heads = 4,
     .tied = true,
     .attention_bias = true,
     .score_cap = true,
     .gelu = true,
     .activation = "hidden_activation"},
    {.family = DecoderFamily::gemma3_text,
     .architecture = "Gemma3ForCausalLM",
     .positions = 131072,
     .head_size = 256,
     .kv_heads = 4,
     .tied = true,
     .attention_bias = true,
     .gelu = true,
     .activation = "hidden_activation",
     .rotary = {.theta = 1e6, .by_layer = true}},
    {.family = DecoderFamily::olmo2, .architecture = "Olmo2ForCausalLM", .norm_epsilon = 1e-5, .attention_bias = true},
    {.family = DecoderFamily::smollm3,
     .architecture = "SmolLM3ForCausalLM",
     .positions = 32768,
     .kv_heads = 4,
     .tied = true,
     .attention_bias = true,
     .ffn_bias = true,
     .rotary = {.theta = 2e6}},
    {.family = DecoderFamily::lfm2,
     .architecture = "Lfm2ForCausalLM",
     .norm_epsilon = 1e-5,
     .positions = 128000,
     .kv_heads = 8,
     .tied = true,
     .activation = nullptr,
     .epsilon = "norm_eps",
     .rotary = {.theta = 1e6}},
    {.family = DecoderFamily::olmoe,
     .architecture = "OlmoeForCausalLM",
     .norm_epsilon = 1e-5,
     .positions = 4096,
     .attention_bias = true},
    {.family = DecoderFamily::qwen2_moe, .architecture = "Qwen2MoeForCausalLM", .positions = 32768, .kv_heads = 16},
    {.family = DecoderFamily::qwen3_moe,
     .architecture = "Qwen3MoeForCausalLM",
     .positions = 32768,
     .kv_heads = 4,
     .attention_bias = true},
    {.family = DecoderFamily::mixtral,
     .architecture = "MixtralForCausalLM",
     .norm_epsilon = 1e-5,
     .positions = 131072,
     .kv_heads = 8,
     .rotary = {.theta = 1e6}},
    {.family = DecoderFamily::lfm2_moe,
     .architecture = "Lfm2MoeForCausalLM",
     .norm_epsilon = 1e-5,
     .positions = 128000,
     .kv_heads = 8,
     .tied = true,
     .activation = nullptr,
     .epsilon = "norm_eps",
     .rotary = {.theta = 1e6}},
    {.family = DecoderFamily::qwen3_5_text,
     .architecture = "Qwen3_5ForCausalLM",
     .positions = 32768,
     .head_size = 256,
     .kv_heads = 4,
     .attention_bias = true,
     .activation = nullptr,
     .rotary = {.partial = true, .share = 0.25, .axes = true}},
    {.family = DecoderFamily::qwen3_5_moe_text,
     .architecture = "Qwen3_5MoeForCausalLM",
     .positions = 32768,
     .head_size = 256,
     .kv_heads = 2,
     .attention_bias = true,
     .activation = nullptr,
     .rotary = {.partial = true, .share = 0.25, .axes = true}},
    {.family = DecoderFamily::glm4_moe,
     .architecture = "Glm4MoeForCausalLM",
     .norm_epsilon = 1e-5,
     .positions = 131072,
     .kv_heads = 8,
     .attention_bias = true,
     .bias_without_output = true,
     .rotary = {.partial = true, .share = 0.5}},
    {.family = DecoderFamily::dots1, .architecture = "Dots1ForCausalLM", .kv_heads = 32, .attention_bias = true},
    {.family = DecoderFamily::deepseek_v2,
     .architecture = "DeepseekV2ForCausalLM",
     .attention_bias = true,
     .rotary = {.scores = true}},
    {.family = DecoderFamily::deepseek_v3,
     .architecture = "DeepseekV3ForCausalLM",
     .positions = 4096,
     .attention_bias = true,
     .rotary = {.scores = true}},
    {.family = DecoderFamily::gpt_oss,
     .architecture = "GptOssForCausalLM",
     .norm_epsilon = 1e-5,
     .positions = 131072,
     .head_size = 64,
     .kv_heads = 8,
     .attention_bias = true,
     .activation = nullptr,
     .rotary = {.theta = 150000, .yarn = 32}}};

const Family& defaults_of(DecoderFamily family) {
  return *std::ranges::find(families, family, &Family::family);
}

RotaryForm rotary_form(const Family& family) {
  RotaryForm form = family.rotary;
  form.architecture = family.architecture;
  return form;
}

/// Returns whether it is a Gemma with norms after branches, windows and caps: Gemma 2 and 3.
bool is_windowed_gemma(const DecoderConfig& config) {
  return config.norms == BlockNorms::both;
}

std::int64_t rounded_ffn(const DecoderConfig& config) {
  // 8/3 x width, rounded up to 64: see DecoderConfig::ffn.
  return config.ffn != 0 ? config.ffn : (8 * config.width + 191) / 192 * 64;
}

/// Reads the feed-forward network's gate: silu, or GELU approximated by tanh under any of its names.
bool read_gelu_gate(const Keys& keys, const Family& family) {
  if (family.activation == nullptr) {
    keys.require_text("hidden_act", "silu", {"silu", "swish"});
    return false;
  }
  std::vector<std::string> gelu = {"gelu_pytorch_tanh", "gelu_new", "gelu_fast"};
  if (family.gelu_is_tanh) gelu.emplace_back("gelu");
  // Files of Gemma have both keys, one without a meaning.
  if (family.gelu) (void)keys.find("hidden_act"), (void)keys.find("hidden_activation");
  const std::string_view key = family.activation;
  const JsonValue value = keys.find(key);
  if (!value) return family.gelu;
  if (value.json().is_string() && std::ranges::find(gelu, value.text()) != gelu.end()) return true;
  std::vector<std::string> supported = gelu;
  supported.insert(family.gelu ? supported.end() : supported.begin(), {"silu", "swish"});
  keys.require_text(key, "", supported);
  return false;
}

/// Reads windows from layer_types; without it, layers are windowed if `usual(index from 0)` is true.
template <class Usual>
void read_layer_types(const Keys& keys, DecoderConfig& config, Usual usual) {
  std::vector<LayerMixer> layers;
  const JsonValue types = keys.find("layer_types");
  if (types) {
    for (const JsonValue& type : entries_of_layers(types, config, "names")) {
      const bool windowed = type.json() == "sliding_attention";
      if (!windowed && type.json() != "full_attention") {
        type.refuse("is not supported; these are: full_attention, sliding_attention");
      }
      if (windowed && config.window == 0) type.refuse("needs a sliding_window of the layers");
      layers.push_back({.windowed = windowed});
    }
  }
  for (std::int64_t i = 0; !types && i < config.layers; ++i)
    layers.push_back({.windowed = usual(i) && config.window > 0});
  set_mixers(config, std::move(layers));
}

void read_windows(const Keys& keys, DecoderConfig& config) {
  using enum DecoderFamily;
  const bool null = keys.has("sliding_window") && !keys.find("sliding_window");
  const std::int64_t absent = config.family == phi3 || null ? 0 : config.family == gpt_oss ? 128 : 4096;
  if (config.family == mistral || config.family == phi3) {
    config.window = keys.size("sliding_window", absent);
  } else if (config.family == mixtral) {
    config.window = keys.size("sliding_window", 0);
  } else if (config.family == qwen3_moe) {
    const std::int64_t window = keys.size("sliding_window", absent);
    config.window = keys.flag("use_sliding_window", false) ? window : 0;
    (void)keys.find("max_window_layers");  // the class has windows in all layers
  } else if (config.family == qwen2_moe) {
    keys.require_flag("use_sliding_window", false);
    for (const char* key : {"sliding_window", "max_window_layers"}) (void)keys.find(key);
    read_layer_types(keys, config, [](std::int64_t) { return false; });
  } else if (config.family == qwen2 || config.family == qwen3) {
    const std::int64_t window = keys.size("sliding_window", absent);
    config.window = keys.flag("use_sliding_window", false) ? window : 0;
    const std::int64_t first = keys.size("max_window_layers", 28, 0);
    read_layer_types(keys, config, [&](std::int64_t i) { return config.window > 0 && i >= first; });
  } else if (config.family == dots1) {
    config.window = keys.size("sliding_window", absent);
    const std::int64_t first = keys.size("max_window_layers", 62, 0);
    read_layer_types(keys, config, [&](std::int64_t i) { return i >= first; });
    if (!keys.flag("use_sliding_window", true) && config.window > 0) {
      keys.find("use_sliding_window").refuse(not_applied_by("Dots1ForCausalLM") + "; set sliding_window to null");
    }
  } else if (config.family == gpt_oss) {
    config.window = keys.size("sliding_window", absent);
    read_layer_types(keys, config, [](std::int64_t i) { return i % 2 == 0; });
  } else if (is_windowed_gemma(config)) {
    config.window = keys.size("sliding_window", absent);
    const std::int64_t interval = config.family == gemma2 ? 2 : keys.size("sliding_window_pattern", 6);
    read_layer_types(keys, config, [&](std::int64_t i) { return (i + 1) % interval != 0; });
  } else {
    // Keys of other families, which such files contain without a meaning.
    for (const char* key : {"sliding_window", "max_window_layers"}) (void)keys.find(key);
  }
}

/// Reads SmolLM3's layers without positions.
void read_rotary_layers(const Keys& keys, DecoderConfig& config) {
  keys.require_flag("use_sliding_window", false);
  const std::int64_t interval = keys.size("no_rope_layer_interval", 4);
  const auto is_full = [](const json& type) { return type == "full_attention"; };
  if (const JsonValue types = keys.find("layer_types");
      types && !(types.json().is_array() && std::ranges::all_of(types.json(), is_full))) {
    types.expected("a list of full_attention, as use_sliding_window is false");
  }
  std::vector<LayerMixer> layers;
  const JsonValue list = keys.find("no_rope_layers");
  if (list) {
    for (const JsonValue& rotary : entries_of_layers(list, config, "values 0 or 1")) {
      layers.push_back({.rotary = rotary.json() != 0});
    }
  }
  for (std::int64_t i = 0; !list && i < config.layers; ++i) layers.push_back({.rotary = (i + 1) % interval != 0});
  set_mixers(config, std::move(layers));
}

void read_windowed_gemma(const Keys& keys, const Family& family, DecoderConfig& config) {
  const bool second = config.family == DecoderFamily::gemma2;
  const std::int64_t scalar = keys.size("query_pre_attn_scalar", 256);
  config.attention_scale = scalar == config.head_size ? 0 : 1.0 / std::sqrt(static_cast<double>(scalar));
  const auto cap = [&](const char* key, double absent) {
    return keys.has(key) && !keys.find(key) ? 0 : keys.positive(key, absent);
  };
  if (const JsonValue ignored = keys.find("attn_logit_softcapping"); ignored && !family.score_cap) {
    ignored.refuse(not_applied_by(family.architecture) + "; set it to null");
  }
  config.attention_softcap = cap("attn_logit_softcapping", second ? 50 : 0);
  config.logit_softcap = cap("final_logit_softcapping", second ? 30 : 0);
}

/// Returns the columns of dense networks; 0: no layer has one, and experts have their own key.
std::int64_t read_ffn(const Keys& keys, DecoderFamily family) {
  if (family == DecoderFamily::lfm2) return read_lfm2_ffn(keys);
  // Files may have the key of Qwen3.5's dense models, which the class lacks.
  if (family == DecoderFamily::qwen3_5_moe_text) return keys.size("intermediate_size", 0);
  return keys.size("intermediate_size");
}

/// Reads the pre-training positions of gpt-oss' published files, which the class takes from the rotary settings.
void read_initial_length(const Keys& keys, const DecoderConfig& config) {
  const JsonValue length = keys.find("initial_context_length");
  const auto original = static_cast<std::int64_t>(config.rope_scaling.original);
  if (!length || original == 0 || keys.size("initial_context_length") == original) return;
  length.refuse("contradicts original_max_position_embeddings = " + std::to_string(original) +
                " of the rotary settings, which transformers reads; make them equal");
}

/// Reads whether the output layer shares the embedding. LFM2's files may name it tie_embedding.
bool read_tied(const Keys& keys, const Family& family) {
  const bool tied = keys.flag("tie_word_embeddings", family.tied);
  if (!has_convolutions(family.family) || !keys.find("tie_embedding")) return tied;
  const bool named = keys.flag("tie_embedding", tied);
  if (keys.find("tie_word_embeddings") && named != tied) {
    keys.find("tie_embedding").refuse("contradicts tie_word_embeddings, another name of it; remove one");
  }
  return named;
}

void check_heads(const Keys& keys, const DecoderConfig& config) {
  if (config.heads % config.kv_heads != 0) {
    keys.fail("num_key_value_heads", std::to_string(config.kv_heads) +
                                         " does not divide num_attention_heads = " + std::to_string(config.heads));
  }
  if (config.head_size % 2 != 0) {
    keys.fail("head_dim", std::to_string(config.head_size) + " is odd; rotary positions need pairs of columns");
  }
}

std::int64_t width_of_heads(const Keys& keys, const DecoderConfig& config, std::string_view key) {
  if (config.width % config.heads == 0) return config.width / config.heads;
  keys.fail(key, std::to_string(config.heads) + " does not divide the width " + std::to_string(config.width));
}

std::int64_t read_head_size(const Keys& keys, const DecoderConfig& config, const Family& family) {
  if (keys.find("head_dim")) return keys.size("head_dim");
  return family.head_size != 0 ? family.head_size : width_of_heads(keys, config, "num_attention_heads");
}

}  // namespace

DecoderConfig read_gpt2(const Keys& keys) {
  // Three names of the same function: the approximation of GELU by tanh.
  keys.require_text("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
  keys.require_flag("scale_attn_weights", true);
  keys.require_flag("scale_attn_by_inverse_layer_idx", false);
  DecoderConfig config = with_family({}, DecoderFamily::gpt2);
  config.layers = keys.aliased_size("n_layer", "num_hidden_layers", most_layers);
  config.width = keys.aliased_size("n_embd", "hidden_size");
  config.heads = keys.aliased_size("n_head", "num_attention_heads");
  config.ffn = keys.size("n_inner", 0);
  config.positions = keys.aliased_size("n_positions", "max_position_embeddings");
  config.tied = keys.flag("tie_word_embeddings", true);
  config.norm_epsilon = keys.positive("layer_norm_epsilon", 1e-5);
  config.head_size = width_of_heads(keys, config, "n_head");
  return config;
}

DecoderConfig read_rotary_family(const Keys& keys, DecoderFamily name) {
  const Family& family = defaults_of(name);
  DecoderConfig config;
  config.layers = keys.size("num_hidden_layers", {}, 1, most_layers);
  config.width = keys.size("hidden_size");
  config.heads = keys.size("num_attention_heads");
  const bool null = keys.has("num_key_value_heads");
  config.kv_heads = keys.size("num_key_value_heads", family.kv_heads == 0 || null ? config.heads : family.kv_heads);
  config.ffn = read_ffn(keys, name);
  config.positions = keys.size("max_position_embeddings", family.positions);
  config.tied = read_tied(keys, family);
  config.norm_epsilon = keys.positive(family.epsilon, family.norm_epsilon);
  config = with_family(config, name);
  if (has_latent_attention(name)) {
    read_hf_latent(keys, config, family.architecture);
  } else {
    config.head_size = read_head_size(keys, config, family);
  }
  check_heads(keys, config);
  config.gelu_gate = read_gelu_gate(keys, family);
  if (!family.ffn_bias) keys.require_flag("mlp_bias", false);
  config.ffn_bias = keys.flag("mlp_bias", false);
  if (family.attention_bias) {
    config.qkv_bias = keys.flag("attention_bias", config.qkv_bias);
    config.out_bias = config.qkv_bias && !family.bias_without_output;
  } else {
    keys.require_flag("attention_bias", config.qkv_bias);
  }
  if (name == DecoderFamily::glm4_moe && keys.flag("use_qk_norm", false)) config.qk_norm = QkNorm::head;
  if (name == DecoderFamily::qwen2_moe) config.qkv_bias = keys.flag("qkv_bias", true);
  if (has_experts(name)) read_hf_experts(keys, config);
  if (name == DecoderFamily::olmoe && config.query_columns() != config.width) {
    keys.fail("head_dim", "heads of " + std::to_string(config.head_size) + " columns do not make up hidden_size = " +
                              std::to_string(config.width) + ", which " + family.architecture + " norms");
  }
  read_rotary(keys, config, rotary_form(family));
  read_windows(keys, config);
  if (name == DecoderFamily::smollm3) read_rotary_layers(keys, config);
  read_hf_mixers(keys, config);
  if (name == DecoderFamily::gpt_oss) read_initial_length(keys, config);
  if (family.gelu) keys.require_flag("use_bidirectional_attention", false);
  if (is_windowed_gemma(config)) read_windowed_gemma(keys, family, config);
  return config;
}

ordered_json gpt2_json(const DecoderConfig& config) {
  ordered_json out;
  out["architectures"] = {"GPT2LMHeadModel"};
  out["model_type"] = name_of(config.family);
  out["activation_function"] = "gelu_new";
  out["n_layer"] = config.layers;
  out["n_embd"] = config.width;
  out["n_head"] = config.heads;
  out["n_inner"] = config.ffn != 0 ? ordered_json(config.ffn) : ordered_json(nullptr);
  out["n_positions"] = config.positions;
  out["n_ctx"] = config.positions;
  out["layer_norm_epsilon"] = config.norm_epsilon;
  for (const char* dropout : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) out[dropout] = 0.0;
  return out;
}

namespace {

void write_layers(const DecoderConfig& config, ordered_json& out) {
  using enum DecoderFamily;
  const bool qwen = config.family == qwen2 || config.family == qwen3;
  if (qwen) out["use_sliding_window"] = config.window > 0;
  if (config.family == qwen3_moe) out["use_sliding_window"] = config.window > 0;
  if (config.family == qwen2_moe) out["qkv_bias"] = config.qkv_bias;
  if (config.family == glm4_moe) out["use_qk_norm"] = config.qk_norm == QkNorm::head;
  if (qwen || config.family == dots1 || config.family == qwen3_moe || config.family == mixtral ||
      config.family == mistral || config.family == phi3 || config.family == gpt_oss || is_windowed_gemma(config)) {
    out["sliding_window"] = config.window > 0 ? ordered_json(config.window) : ordered_json(nullptr);
  }
  if (qwen || config.family == dots1 || config.family == gpt_oss || is_windowed_gemma(config)) {
    for (std::int64_t i = 0; i < config.layers; ++i) {
      out["layer_types"].push_back(config.mixer_of(i).windowed ? "sliding_attention" : "full_attention");
    }
  }
  write_hf_mixers(config, out);
  if (config.family == smollm3) {
    for (std::int64_t i = 0; i < config.layers; ++i) {
      out["no_rope_layers"].push_back(config.mixer_of(i).rotary ? 1 : 0);
    }
  }
}

void write_windowed_gemma(const DecoderConfig& config, ordered_json& out) {
  const auto cap = [](double value) { return value > 0 ? ordered_json(value) : ordered_json(nullptr); };
  const double scale = config.attention_scale;
  out["query_pre_attn_scalar"] = scale > 0 ? std::llround(1.0 / (scale * scale)) : config.head_size;
  out["attn_logit_softcapping"] = cap(config.attention_softcap);
  out["final_logit_softcapping"] = cap(config.logit_softcap);
}

}  // namespace

ordered_json rotary_family_json(const DecoderConfig& config) {
  const Family& family = defaults_of(config.family);
  ordered_json out;
  out["architectures"] = {family.architecture};
  out["model_type"] = name_of(config.family);
  if (family.activation != nullptr) out[family.activation] = config.gelu_gate ? "gelu_pytorch_tanh" : "silu";
  out["num_hidden_layers"] = config.layers;
  out["hidden_size"] = config.width;
  out["num_attention_heads"] = config.heads;
  out["num_key_value_heads"] = config.kv_heads != 0 ? config.kv_heads : config.heads;
  const std::int64_t head_size = config.head_size != 0 ? config.head_size : config.width / config.heads;
  if (has_latent_attention(config.family)) {
    write_hf_latent(config, out);
  } else if (family.head_size != 0 || head_size * config.heads != config.width) {
    out["head_dim"] = head_size;
  }
  if (config.family != DecoderFamily::qwen3_5_moe_text) out["intermediate_size"] = rounded_ffn(config);
  out["max_position_embeddings"] = config.positions;
  out[family.epsilon] = config.norm_epsilon;
  if (family.attention_bias) out["attention_bias"] = config.qkv_bias;
  if (family.ffn_bias) out["mlp_bias"] = config.ffn_bias;
  write_rotary(config, rotary_form(family), out);
  write_layers(config, out);
  if (has_experts(config.family)) write_hf_experts(config, out);
  if (is_windowed_gemma(config)) write_windowed_gemma(config, out);
  return out;
}

}  // namespace maestro
