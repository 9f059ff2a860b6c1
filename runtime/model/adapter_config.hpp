// SPDX-License-Identifier: Apache-2.0
// adapter_config.json and the tensor names of low-rank adapters, as in PEFT 0.21
// (https://github.com/huggingface/peft, LoraConfig). Module model.layers.0.self_attn.q_proj has the tensors
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
  std::vector<std::string> modules;  ///< last parts of the modules' names
  bool transposed = false;           ///< the adapted weights are stored as (K, N), as in GPT-2
  std::string base;                  ///< folder of the adapted model; empty: none
  [[nodiscard]] double scale() const { return alpha / static_cast<double>(rank); }
};

[[nodiscard]] std::string adapter_config_text(const AdapterConfig& config);
/// Reads the fields above. Errors (invalid_argument) name `where` and the key; adapters of another kind are errors.
[[nodiscard]] Result<AdapterConfig> parse_adapter_config(std::string_view text, std::string_view where);

}  // namespace maestro
