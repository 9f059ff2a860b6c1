// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/hf_config.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "runtime/state/hf_keys.hpp"
#include "runtime/state/posix_file.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;
using Keys = HfKeys;

namespace {

DecoderConfig gpt2_of(const Keys& keys) {
  // Three names of the same function: the approximation of GELU by tanh.
  keys.require_text("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
  keys.require_flag("scale_attn_weights", true);
  keys.require_flag("scale_attn_by_inverse_layer_idx", false);
  keys.require_absent("quantization_config");
  DecoderConfig config;
  config.family = "gpt2";
  config.layers = keys.aliased_size("n_layer", "num_hidden_layers");
  config.width = keys.aliased_size("n_embd", "hidden_size");
  config.heads = keys.aliased_size("n_head", "num_attention_heads");
  config.ffn = keys.size("n_inner", 0);
  config.positions = keys.aliased_size("n_positions", "max_position_embeddings");
  config.tied = keys.flag("tie_word_embeddings", true);
  config.norm_epsilon = keys.positive("layer_norm_epsilon", 1e-5);
  return config;
}

/// rope_theta stands at the top, or since transformers 5 in rope_parameters. Where it stands twice, the values agree.
double rope_theta_of(const Keys& keys) {
  std::optional<double> theta;
  std::string place;
  const auto take = [&](const std::string& where, const Keys& at) {
    if (at.find("rope_theta") == nullptr) return;
    const double found = at.positive("rope_theta", 0);
    if (theta && *theta != found) {
      keys.fail(where, "= " + at.find("rope_theta")->dump() + " contradicts " + place + "; remove one");
    }
    theta = found;
    place = where + " = " + at.find("rope_theta")->dump();
  };
  take("rope_theta", keys);
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const json* scaling = keys.find(key);
    if (scaling == nullptr) continue;
    if (!scaling->is_object()) keys.fail(key, "is " + shown(*scaling) + "; it must be an object or null");
    const std::string type = scaling->value("rope_type", scaling->value("type", json("default"))).dump();
    if (type != "\"default\"") keys.fail(key, "of type " + printable(type) + " is not supported; only \"default\" is");
    take(std::string(key) + ".rope_theta", keys.inside(key, *scaling));
  }
  return theta.value_or(10000.0);
}

DecoderConfig llama_of(const Keys& keys) {
  keys.require_text("hidden_act", "silu", {"silu", "swish"});
  keys.require_flag("attention_bias", false);
  keys.require_flag("mlp_bias", false);
  keys.require_absent("quantization_config");
  DecoderConfig config;
  config.family = "llama";
  config.layers = keys.size("num_hidden_layers");
  config.width = keys.size("hidden_size");
  config.heads = keys.size("num_attention_heads");
  config.kv_heads = keys.size("num_key_value_heads", config.heads);
  config.ffn = keys.size("intermediate_size");
  config.positions = keys.size("max_position_embeddings", 2048);
  config.tied = keys.flag("tie_word_embeddings", false);
  config.rope_theta = rope_theta_of(keys);
  config.norm_epsilon = keys.positive("rms_norm_eps", 1e-6);
  if (config.heads % config.kv_heads != 0) {
    keys.fail("num_key_value_heads", "= " + std::to_string(config.kv_heads) +
                                         " does not divide num_attention_heads = " + std::to_string(config.heads));
  }
  const std::int64_t head_dim = keys.size("head_dim", config.width / config.heads);
  if (head_dim * config.heads != config.width) {
    keys.fail("head_dim",
              "= " + std::to_string(head_dim) + " is not supported; only hidden_size / " + "num_attention_heads is");
  }
  return config;
}

DecoderConfig decoder_of(const json& object, std::string_view where) {
  const Keys keys(object, where);
  const json* type = keys.find("model_type");
  if (type == nullptr) keys.fail("model_type", "is missing; it must be gpt2 or llama");
  const bool gpt2 = *type == "gpt2";
  if (!gpt2 && *type != "llama") keys.fail("model_type", "= " + shown(*type) + " is not supported; gpt2 and llama are");
  DecoderConfig config = gpt2 ? gpt2_of(keys) : llama_of(keys);
  config.vocabulary = keys.size("vocab_size");
  config.init_std = keys.positive("initializer_range", 0.02);
  if (config.width % config.heads != 0) {
    keys.fail(gpt2 ? "n_head" : "num_attention_heads",
              "= " + std::to_string(config.heads) + " does not divide the width " + std::to_string(config.width));
  }
  return config;
}

std::int64_t llama_ffn(const DecoderConfig& config) {
  // 8/3 x width, rounded up to 64: see DecoderConfig::ffn.
  return config.ffn != 0 ? config.ffn : (8 * config.width + 191) / 192 * 64;
}

nlohmann::ordered_json gpt2_json(const DecoderConfig& config) {
  nlohmann::ordered_json out;
  out["architectures"] = {"GPT2LMHeadModel"};
  out["model_type"] = "gpt2";
  out["activation_function"] = "gelu_new";
  out["n_layer"] = config.layers;
  out["n_embd"] = config.width;
  out["n_head"] = config.heads;
  out["n_inner"] = config.ffn != 0 ? nlohmann::ordered_json(config.ffn) : nlohmann::ordered_json(nullptr);
  out["n_positions"] = config.positions;
  out["n_ctx"] = config.positions;
  out["layer_norm_epsilon"] = config.norm_epsilon;
  for (const char* dropout : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) out[dropout] = 0.0;
  return out;
}

nlohmann::ordered_json llama_json(const DecoderConfig& config) {
  nlohmann::ordered_json out;
  out["architectures"] = {"LlamaForCausalLM"};
  out["model_type"] = "llama";
  out["hidden_act"] = "silu";
  out["num_hidden_layers"] = config.layers;
  out["hidden_size"] = config.width;
  out["num_attention_heads"] = config.heads;
  out["num_key_value_heads"] = config.kv_heads != 0 ? config.kv_heads : config.heads;
  out["intermediate_size"] = llama_ffn(config);
  out["max_position_embeddings"] = config.positions;
  out["rms_norm_eps"] = config.norm_epsilon;
  out["rope_theta"] = config.rope_theta;
  out["attention_bias"] = false;
  out["mlp_bias"] = false;
  return out;
}

}  // namespace

Result<DecoderConfig> parse_hf_config(std::string_view text, std::string_view where) {
  return parse_hf_keys(text, where, decoder_of);
}

Result<DecoderConfig> read_hf_config(const fs::path& path) {
  const auto found = read_hf_config_text(path);
  return found ? parse_hf_config(found->text, found->file) : found.error();
}

Result<HfConfigText> read_hf_config_text(const fs::path& path) {
  std::error_code failure;
  const fs::path file = fs::is_directory(path, failure) ? path / "config.json" : path;
  Result<std::string> text = read_text(file);
  if (!text) return text.error();
  return HfConfigText{file.string(), *std::move(text)};
}

Result<std::vector<std::string>> read_hf_index(const fs::path& folder) {
  const fs::path index = folder / hf_index_file;
  std::error_code failure;
  if (!fs::exists(index, failure)) return std::vector<std::string>();
  const Result<std::string> text = read_text(index);
  if (!text) return text.error();
  return parse_hf_keys(*text, index.string(), [](const json& object, std::string_view where) {
    const Keys keys(object, where);
    const json* map = keys.find("weight_map");
    if (map == nullptr || !map->is_object()) keys.fail("weight_map", "is no object of tensors and files");
    std::set<std::string> files;
    for (const auto& [tensor, file] : map->items()) {
      const std::string name = file.is_string() ? file.get<std::string>() : "";
      if (name.empty() || fs::path(name).filename() != name) keys.fail("weight_map", "names the file " + file.dump());
      files.insert(name);
    }
    return std::vector<std::string>(files.begin(), files.end());
  });
}

Result<std::string> hf_model_type(std::string_view text, std::string_view where) {
  return parse_hf_keys(text, where, [](const json& object, std::string_view file) {
    const Keys keys(object, file);
    const json* type = keys.find("model_type");
    if (type == nullptr || !type->is_string()) keys.fail("model_type", "is missing");
    return type->get<std::string>();
  });
}

std::string hf_config_text(const DecoderConfig& config) {
  nlohmann::ordered_json out = config.family == "llama" ? llama_json(config) : gpt2_json(config);
  out["vocab_size"] = config.vocabulary;
  out["tie_word_embeddings"] = config.tied;
  out["initializer_range"] = config.init_std;
  out["use_cache"] = true;
  out["torch_dtype"] = "float32";
  return out.dump(2) + "\n";
}

}  // namespace maestro
