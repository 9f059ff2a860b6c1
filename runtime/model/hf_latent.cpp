// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_latent.hpp"

#include <string>

namespace maestro {

void read_hf_latent(const HfKeys& keys, DecoderConfig& config, std::string_view architecture) {
  LatentConfig& latent = config.latent;
  const bool null = keys.has("q_lora_rank") && !keys.find("q_lora_rank");
  latent.query_rank = null ? 0 : keys.size("q_lora_rank", 1536);
  latent.rank = keys.size("kv_lora_rank", 512);
  latent.rope_size = keys.size("qk_rope_head_dim", 64);
  latent.value_size = keys.size("v_head_dim", 128);
  if (config.family == DecoderFamily::deepseek_v3) latent.interleaved = keys.flag("rope_interleave", true);
  config.head_size = keys.size("qk_nope_head_dim", 128) + latent.rope_size;
  const auto equals = [&](const char* key, std::int64_t size, const std::string& of) {
    if (keys.size(key, size) == size) return;
    keys.find(key).refuse(not_applied_by(architecture) + ", which uses " + of + " = " + std::to_string(size));
  };
  equals("head_dim", latent.rope_size, "qk_rope_head_dim");
  equals("qk_head_dim", config.head_size, "qk_nope_head_dim + qk_rope_head_dim");
  equals("num_key_value_heads", config.heads, "num_attention_heads");
  if (latent.rope_size % 2 != 0) {
    keys.fail("qk_rope_head_dim", std::to_string(latent.rope_size) + " is odd; columns turn in pairs");
  }
  if (config.head_size % 2 != 0) {
    keys.fail("qk_nope_head_dim", std::to_string(config.head_size - latent.rope_size) +
                                      " is odd, which is not supported; heads have an even number of columns");
  }
  if (latent.value_size > config.head_size) {
    keys.fail("v_head_dim", std::to_string(latent.value_size) + " is above qk_nope_head_dim + qk_rope_head_dim = " +
                                std::to_string(config.head_size) + ", which is not supported");
  }
}

void write_hf_latent(const DecoderConfig& config, nlohmann::ordered_json& out) {
  const LatentConfig& latent = config.latent;
  out["q_lora_rank"] =
      latent.query_rank > 0 ? nlohmann::ordered_json(latent.query_rank) : nlohmann::ordered_json(nullptr);
  out["kv_lora_rank"] = latent.rank;
  out["qk_nope_head_dim"] = config.head_size - latent.rope_size;
  out["qk_rope_head_dim"] = latent.rope_size;
  out["v_head_dim"] = latent.value_size;
  if (config.family == DecoderFamily::deepseek_v3) out["rope_interleave"] = latent.interleaved;
}

}  // namespace maestro
