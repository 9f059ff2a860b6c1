// SPDX-License-Identifier: Apache-2.0
// adapter_config.json and the names of tensors of low-rank adapters, as PEFT 0.21 has them
// (https://github.com/huggingface/peft, LoraConfig): of the module model.layers.0.self_attn.q_proj
//   base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight (r, K) and .lora_B.weight (N, r)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

inline constexpr std::string_view adapter_config_file = "adapter_config.json";
inline constexpr std::string_view adapter_prefix = "base_model.model.";
inline constexpr std::string_view adapter_a = ".lora_A.weight";
inline constexpr std::string_view adapter_b = ".lora_B.weight";

struct AdapterConfig {
  std::int64_t rank = 0;
  double alpha = 0;
  std::vector<std::string> modules;  ///< the last parts of their names
  bool transposed = false;           ///< the weights below are stored as (K, N), as GPT-2's are
  std::string base;                  ///< folder of the model with these weights; empty: none
  [[nodiscard]] double scale() const { return alpha / static_cast<double>(rank); }
};

[[nodiscard]] std::string adapter_config_text(const AdapterConfig& config);
/// Reads the fields above. Errors (invalid_argument), also for adapters of another kind, name `where` and the key.
[[nodiscard]] Result<AdapterConfig> parse_adapter_config(std::string_view text, std::string_view where);

}  // namespace maestro
