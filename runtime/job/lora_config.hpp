// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters of a section, as a job file describes them. Apart from config.hpp, so that sections need not parse
// the readers' structs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace maestro {

/// `lora` of a section: adapters are trained, the weights below them are frozen (Hu et al. 2021).
struct LoraConfig {
  std::int64_t rank = 0;  ///< r; 0: no adapters
  double alpha = 0;       ///< the adapters' product counts alpha / r
  bool qkv = true;        ///< on the projections of query, key and value
  bool out = true;        ///< on the attention's output projection
  bool ffn = true;        ///< on the projections of the feed-forward network
  [[nodiscard]] bool given() const { return rank > 0; }
  [[nodiscard]] double scale() const { return alpha / static_cast<double>(rank); }
  bool operator==(const LoraConfig&) const = default;
};

/// The names of the products that have adapters: "qkv, out, ffn".
[[nodiscard]] inline std::string products_of(const LoraConfig& lora) {
  std::string names;
  for (const auto& [name, on] : {std::pair{"qkv", lora.qkv}, std::pair{"out", lora.out}, std::pair{"ffn", lora.ffn}}) {
    if (on) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

}  // namespace maestro
