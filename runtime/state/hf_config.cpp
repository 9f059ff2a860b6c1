#include "runtime/state/hf_config.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/state/posix_file.hpp"

namespace maestro {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// The keys of one file, with errors that say where. Throws JobError, caught at this file's border.
class Keys {
 public:
  Keys(const json& object, std::string_view where) : object_(object), where_(where) {}

  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    throw JobError(where_ + ": " + std::string(key) + " " + what);
  }
  [[nodiscard]] Keys inside(std::string_view key, const json& object) const {
    return {object, where_ + ": " + std::string(key)};
  }
  /// Null counts as absent, as it does for transformers.
  [[nodiscard]] const json* find(std::string_view key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  [[nodiscard]] std::int64_t size(std::string_view key, std::optional<std::int64_t> absent = {}) const {
    const json* value = find(key);
    if (value == nullptr && absent) return *absent;
    if (value == nullptr) fail(key, "is missing");
    constexpr std::int64_t most = std::int64_t{1} << 31;
    const bool good = value->is_number_integer() && *value >= 1 && *value <= most;
    if (!good) fail(key, "is " + value->dump() + "; it must be a whole number from 1 to 2^31");
    return value->get<std::int64_t>();
  }
  [[nodiscard]] double positive(std::string_view key, double absent) const {
    const json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_number() || !(value->get<double>() > 0)) fail(key, "is " + value->dump() + "; it must be above 0");
    return value->get<double>();
  }
  [[nodiscard]] bool flag(std::string_view key, bool absent) const {
    const json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) fail(key, "is " + value->dump() + "; it must be true or false");
    return value->get<bool>();
  }
  /// Refuses a setting that would make another model than the one this program computes.
  void require_flag(std::string_view key, bool needed) const {
    if (flag(key, needed) != needed) {
      fail(key, std::string(needed ? "= false" : "= true") + " is not supported; only " + (needed ? "true" : "false") +
                    " is");
    }
  }
  void require_text(std::string_view key, std::string_view absent, const std::vector<std::string>& supported) const {
    const json* value = find(key);
    std::string text(absent);
    if (value != nullptr) text = value->is_string() ? value->get<std::string>() : value->dump();
    if (std::ranges::find(supported, text) == supported.end()) {
      fail(key, "= " + text + " is not supported; the supported one is " + supported.front());
    }
  }
  void require_absent(std::string_view key) const {
    if (find(key) != nullptr) fail(key, "is not supported; only models without it are");
  }

 private:
  const json& object_;
  std::string where_;
};

DecoderConfig gpt2_of(const Keys& keys) {
  // Three names of one function: the approximation of GELU by tanh.
  keys.require_text("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
  keys.require_flag("scale_attn_weights", true);
  keys.require_flag("scale_attn_by_inverse_layer_idx", false);
  keys.require_absent("quantization_config");
  DecoderConfig config;
  config.family = "gpt2";
  config.layers = keys.size("n_layer");
  config.width = keys.size("n_embd");
  config.heads = keys.size("n_head");
  config.ffn = keys.size("n_inner", 0);
  config.positions = keys.size("n_positions");
  config.tied = keys.flag("tie_word_embeddings", true);
  config.norm_epsilon = keys.positive("layer_norm_epsilon", 1e-5);
  return config;
}

/// rope_theta stands at the top, or since transformers 5 in rope_parameters.
double rope_theta_of(const Keys& keys) {
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const json* scaling = keys.find(key);
    if (scaling == nullptr) continue;
    if (!scaling->is_object()) keys.fail(key, "is " + scaling->dump() + "; it must be an object or null");
    const std::string type = scaling->value("rope_type", scaling->value("type", json("default"))).dump();
    if (type != "\"default\"") keys.fail(key, "of type " + type + " is not supported; only \"default\" is");
    if (scaling->contains("rope_theta")) return keys.inside(key, *scaling).positive("rope_theta", 10000.0);
  }
  return keys.positive("rope_theta", 10000.0);
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
  if (!gpt2 && *type != "llama") keys.fail("model_type", "= " + type->dump() + " is not supported; gpt2 and llama are");
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
  try {
    const json object = json::parse(text);
    if (!object.is_object()) throw JobError(std::string(where) + " is not a JSON object");
    return decoder_of(object, where);
  } catch (const json::parse_error& error) {
    return Error{ErrorCode::invalid_argument, std::string(where) + " is no JSON at byte " + std::to_string(error.byte)};
  } catch (const JobError& error) {
    return Error{ErrorCode::invalid_argument, error.what()};
  }
}

Result<DecoderConfig> read_hf_config(const fs::path& path) {
  std::error_code failure;
  const fs::path file = fs::is_directory(path, failure) ? path / "config.json" : path;
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  return parse_hf_config(*text, file.string());
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
