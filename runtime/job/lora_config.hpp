// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters of a section, as a job file describes them. Separate from config.hpp, so that sections need not
// parse the readers' structs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace maestro {

/// `lora` of a section: adapters are trained, the adapted weights are frozen (Hu et al. 2021).
struct LoraConfig {
  std::int64_t rank = 0;  ///< r; 0: no adapters
  double alpha = 0;       ///< the adapters' product is scaled by alpha / r
  bool qkv = true;        ///< adapters on the query, key and value projections
  bool out = true;        ///< adapters on the attention's output projection
  bool ffn = true;        ///< adapters on the feed-forward network's projections
  [[nodiscard]] bool given() const { return rank > 0; }
  [[nodiscard]] double scale() const { return alpha / static_cast<double>(rank); }
  bool operator==(const LoraConfig&) const = default;
};

/// Returns the names of the products with adapters: "qkv, out, ffn".
[[nodiscard]] inline std::string products_of(const LoraConfig& lora) {
  std::string names;
  for (const auto& [name, on] : {std::pair{"qkv", lora.qkv}, std::pair{"out", lora.out}, std::pair{"ffn", lora.ffn}}) {
    if (on) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

}  // namespace maestro
