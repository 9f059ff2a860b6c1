// SPDX-License-Identifier: Apache-2.0
// How a mixture of experts chooses a token's experts and weighs them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace maestro {

/// z are a token's E scores; the k best experts are chosen.
enum class RouterKind : std::uint8_t {
  softmax,  ///< weights are the softmax over all E scores (OLMoE, Muennighoff et al. 2024)
  chosen,   ///< weights are the softmax over the k chosen scores (Mixtral, Jiang et al. 2024)
  sigmoid   ///< chosen by sigmoid(z) + bias; weights are sigmoid(z) (DeepSeek-V3, 2024)
};
inline constexpr std::array<std::string_view, 3> router_kind_names{"softmax", "chosen", "sigmoid"};

struct RouteOptions {
  RouterKind kind = RouterKind::softmax;
  double scale = 1;               ///< factor of the weights
  bool divided = false;           ///< kind sigmoid: weights are divided by their sum
  double divisor_addend = 1e-20;  ///< added to that sum
  /// Groups of E / groups experts: only experts of the `top_groups` best groups are chosen. A group's score is its best
  /// expert's; for kind sigmoid, the sum of its two best. Source: DeepSeek-V2 (2024), section 2.1.2, and V3.
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  bool operator==(const RouteOptions&) const = default;
};

}  // namespace maestro
