// SPDX-License-Identifier: Apache-2.0
// The mixtures of experts in a decoder's layers (Shazeer et al. 2017): each token passes through a few of many
// feed-forward networks. And the names that they have in Hugging Face folders.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/core/route_options.hpp"

namespace maestro {

/// How training keeps the experts' loads equal.
enum class LoadBalance : std::uint8_t {
  none,
  sequence,  ///< loss of each sample's loads (DeepSeek-V2 2024, section 2.1.3)
  batch,     ///< loss of the loads that the global batch had in the step before
  bias       ///< bias of the scores, moved after each step (DeepSeek-V3 2024, section 2.1.2)
};
inline constexpr std::array<std::string_view, 4> load_balance_names{"none", "sequence", "batch", "bias"};

struct ExpertConfig {
  std::int64_t count = 0;  ///< E, experts of a layer; 0: every layer has a dense network
  std::int64_t per_token = 2;
  std::int64_t ffn = 0;         ///< columns of an expert
  std::int64_t shared_ffn = 0;  ///< columns of the expert that every token passes through; 0: none
  bool shared_gate = false;     ///< the shared expert's result is times sigmoid(x g)
  RouteOptions router;
  bool score_bias = false;                 ///< scores have an addend for the choice, one for each expert
  bool biases = false;                     ///< the router and both products of an expert have biases
  double gate_limit = 0;                   ///< limit of GluGate::clamped; 0: the experts have another gate
  double gate_alpha = 0;                   ///< alpha of that gate
  std::vector<std::int64_t> dense_layers;  ///< layers with a dense network, ascending
  // For training only, not a part of the model. Sections resolve absent values.
  std::optional<LoadBalance> balance;
  std::optional<double> balance_weight;  ///< weight of the loss that keeps loads equal
  std::optional<double> bias_rate;       ///< a step's change of the scores' bias
  double z_weight = 0;                   ///< weight of the loss that keeps scores small

  [[nodiscard]] bool at(std::int64_t layer) const {
    return count > 0 && !std::ranges::binary_search(dense_layers, layer);
  }
  /// Returns whether training has losses of the scores, or counts of the routes; needs resolved values.
  [[nodiscard]] bool judged() const { return balance.value_or(LoadBalance::none) != LoadBalance::none || z_weight > 0; }
  bool operator==(const ExpertConfig&) const = default;
};

/// Names of a family's expert layers: "model.layers.0.mlp.experts.5.gate_proj.weight" is block.experts.I.gate.weight.
/// Next to this form, the hub's, folders may have one tensor for all experts: fused_block.experts.gate_up_proj (E, 2 F,
/// C) and fused_block.experts.down_proj (E, C, F). The bias of scores is block.bias, and block.shared the expert that
/// every token passes through. With `transposed`, folders have only block.experts.gate_up_proj (E, C, 2 F), gate and up
/// being alternate columns, and block.experts.down_proj (E, F, C).
struct ExpertNames {
  std::string_view block = "mlp";
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
  std::string_view fused_block = "mlp";
  std::string_view bias = "";
  std::string_view shared = "shared_expert";
  std::string_view router = "gate";
  bool transposed = false;
};

}  // namespace maestro
