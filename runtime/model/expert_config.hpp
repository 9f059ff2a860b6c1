// SPDX-License-Identifier: Apache-2.0
// The mixtures of experts in a decoder's layers (Shazeer et al. 2017): each token passes through a few of many
// feed-forward networks. And the names that they have in Hugging Face folders.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/core/route_options.hpp"

namespace maestro {

struct ExpertConfig {
  std::int64_t count = 0;  ///< E, experts of a layer; 0: every layer has a dense network
  std::int64_t per_token = 2;
  std::int64_t ffn = 0;         ///< columns of an expert
  std::int64_t shared_ffn = 0;  ///< columns of the expert that every token passes through; 0: none
  bool shared_gate = false;     ///< the shared expert's result is times sigmoid(x g)
  RouteOptions router;
  bool score_bias = false;                 ///< scores have an addend for the choice, one for each expert
  std::vector<std::int64_t> dense_layers;  ///< layers with a dense network, ascending
  // For training only, not a part of the model:
  double balance_weight = 0;  ///< weight of the loss that keeps the experts' loads in a sample equal
  double z_weight = 0;        ///< weight of the loss that keeps scores small

  [[nodiscard]] bool at(std::int64_t layer) const {
    return count > 0 && !std::ranges::binary_search(dense_layers, layer);
  }
  bool operator==(const ExpertConfig&) const = default;
};

/// Names of a family's expert layers: "model.layers.0.mlp.experts.5.gate_proj.weight" is block.experts.I.gate.weight.
/// Next to this form, the hub's, folders may have one tensor for all experts: fused_block.experts.gate_up_proj (E, 2 F,
/// C) and fused_block.experts.down_proj (E, C, F). The bias of scores is block.bias.
struct ExpertNames {
  std::string_view block = "mlp";
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
  std::string_view fused_block = "mlp";
  std::string_view bias = "";
};

}  // namespace maestro
