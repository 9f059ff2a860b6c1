// SPDX-License-Identifier: Apache-2.0
// Differentiable operators of mixtures of experts, as functions.hpp. Shapes are as in expert_operators.hpp: a
// micro-batch has M tokens and R = M k routes.
#pragma once

#include "runtime/ops/functions.hpp"

namespace maestro {

/// The routes of a micro-batch, and the rows that they have.
struct Routes {
  std::int64_t tokens = 0;  ///< M
  Block offsets;            ///< (E + 1) i32
  Block row_tokens;         ///< (R) i32
  Block row_routes;         ///< (R) i32
  Block places;             ///< (M, k) i32
  Var weights;              ///< (R, 1) f32, in the order of the rows
};

/// Chooses `chosen` experts for each row of logits (M, E) f32. `bias` (E) f32 enters the choice of kind sigmoid; or
/// undefined.
Routes route(Tape& tape, const Var& logits, std::int64_t chosen, const RouteOptions& options, const Tensor& bias = {});
/// Weights of a layer's experts, gated feed-forward networks.
struct ExpertMatrices {
  Parameter* in = nullptr;   ///< (E 2F, C), E groups [gate | up]
  Parameter* out = nullptr;  ///< (E C, F), E groups
  GluGate gate = GluGate::silu;
};
/// Returns (M, C) act from x (M, C) act: the sum over each token's experts of weight times out(glu(in(x))).
///
/// The weight multiplies an expert's values before its last product, which is linear. For the backward pass the tape
/// keeps x and the first products' results, (R, 2F) act; the other values of routes are computed again.
Var expert_networks(Tape& tape, const Var& x, const Routes& routes, const ExpertMatrices& experts);

}  // namespace maestro
