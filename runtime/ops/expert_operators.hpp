// SPDX-License-Identifier: Apache-2.0
// Operators for mixtures of experts, as operators.hpp: E experts, k of them for a token, R = M k routes, a route being
// a token's way through one of its experts. Rows of routes are sorted by (expert, token, slot), a slot being the place
// among the token's k experts, so that each expert's rows lie together.
//
// MO-1 (no token is dropped): every token has k routes, and every route has a row.
// MO-2 (order of routes): routes are in the order (expert, row of the micro-batch, slot).
// MO-5 (ties): among equal scores, of experts or of groups, the lower index is chosen.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/core/route_options.hpp"
#include "runtime/core/tensor.hpp"

namespace maestro {

class PackedWeight;

/// Chooses each token's k experts and their weights (RouterKind).
struct Route {
  Tensor logits{};  ///< (M, E) f32
  Tensor bias{};    ///< (E) f32, added to the sigmoids for the choice only; or undefined
  RouteOptions options{};
  Tensor experts{};  ///< (M, k) i32, best first
  Tensor weights{};  ///< (M, k) f32
};

/// Computes dlogits from the weights' gradients. The choice is not differentiable.
struct RouteBackward {
  Tensor dweights{};  ///< (M, k) f32
  Tensor logits{};    ///< (M, E) f32
  Tensor experts{};   ///< (M, k) i32
  Tensor weights{};   ///< (M, k) f32
  RouteOptions options{};
  Tensor dlogits{};  ///< (M, E) f32, overwritten
};

/// Sorts the routes.
struct SortRoutes {
  Tensor experts{};  ///< (M, k) i32, in [0, E)
  Tensor offsets{};  ///< (E + 1) i32: the first row of each expert; the last is R
  Tensor tokens{};   ///< (R) i32: the token of each row
  Tensor routes{};   ///< (R) i32: token k + slot of each row
  Tensor places{};   ///< (M, k) i32: the row of each route
};

/// Counts the routes of each sample's tokens to each expert.
struct CountRoutes {
  Tensor experts{};  ///< (M, k) i32, in [0, E)
  Tensor starts{};   ///< (S + 1) i32: the first of the M tokens of each sample; the last is M
  Tensor counts{};   ///< (S, E) f32, overwritten; exact up to 2^24
};

/// y = x w[g]^T for the rows [offsets[g], offsets[g + 1]) of each group g.
struct GroupedLinear {
  Tensor x{};                       ///< (R, K) act
  const PackedWeight* w = nullptr;  ///< G groups of (N, K)
  Tensor offsets{};                 ///< (G + 1) i32
  Tensor y{};                       ///< (R, N) act
  bool rows_alone = false;          ///< the bits of a row do not depend on the other rows
};

/// Computes dx = dy w[g] for the rows of each group.
struct GroupedLinearBackwardInput {
  Tensor dy{};                      ///< (R, N) act
  const PackedWeight* w = nullptr;  ///< G groups of (N, K), packed for backward_input
  Tensor offsets{};                 ///< (G + 1) i32
  Tensor dx{};                      ///< (R, K) act
};

/// Computes dw[g] += dy^T x over the rows of each group.
struct GroupedLinearBackwardWeight {
  Tensor dy{};       ///< (R, N) act
  Tensor x{};        ///< (R, K), same dtype as dy
  Tensor offsets{};  ///< (G + 1) i32
  Tensor dw{};       ///< (G N, K) f32
};

/// Adds weights[r] bias[g] to y[r] for the rows r of each group g.
struct GroupedBias {
  Tensor bias{};     ///< (G, N) f32
  Tensor offsets{};  ///< (G + 1) i32
  Tensor weights{};  ///< (R) f32, or undefined: 1
  Tensor y{};        ///< (R, N) act
};

/// Computes dbias[g] += the sum of weights[r] dy[r] over the rows of each group, in their order, and dweights[r] += the
/// dot product of dy[r] and bias[g].
struct GroupedBiasBackward {
  Tensor dy{};        ///< (R, N) act
  Tensor bias{};      ///< (G, N) f32
  Tensor offsets{};   ///< (G + 1) i32
  Tensor weights{};   ///< (R) f32, or undefined: 1
  Tensor dbias{};     ///< (G, N) f32, or undefined: frozen
  Tensor dweights{};  ///< (R) f32, or undefined
};

/// y = the sum of each token's rows, in the order of its slots, in f32.
struct CombineRows {
  Tensor rows{};    ///< (R, C) act
  Tensor places{};  ///< (M, k) i32
  Tensor y{};       ///< (M, C) act
};

/// Updates experts' loads, or the bias of their scores, after a step with these counts of routes; also sets the counts
/// to zero. With `rate` 0, value = counts / mean. Else value += rate if a count is below the mean, and value -= rate if
/// it is above (DeepSeek-V3 2024, section 2.1.2).
struct StepCounts {
  std::span<float> value{};   ///< (E)
  std::span<float> counts{};  ///< (E)
  double mean = 1;            ///< routes of an expert, if all had as many
  double rate = 0;
};

}  // namespace maestro
