// SPDX-License-Identifier: Apache-2.0
// Differentiable operators of mixtures of experts, as functions.hpp. Shapes are as in expert_operators.hpp: a
// micro-batch has M tokens and R = M k routes.
#pragma once

#include <array>
#include <span>

#include "runtime/collective/communicator.hpp"
#include "runtime/ops/functions.hpp"

namespace maestro {

/// The routes of a micro-batch, and the rows that they have.
struct Routes {
  std::int64_t tokens = 0;  ///< M
  Block experts;            ///< (M, k) i32
  Block offsets;            ///< (E + 1) i32
  Block row_tokens;         ///< (R) i32
  Block row_routes;         ///< (R) i32
  Block places;             ///< (M, k) i32
  Var weights;              ///< (R, 1) f32, in the order of the rows
};

/// Chooses `chosen` experts for each row of logits (M, E) f32. `bias` (E) f32 enters the choice of kind sigmoid; or
/// undefined.
Routes route(Tape& tape, const Var& logits, std::int64_t chosen, const RouteOptions& options, const Tensor& bias = {});
/// Routes each row of logits (M, E) f32 to `chosen` given experts: `experts` (M chosen) has different experts in [0, E)
/// for a row, in host memory. Weights and gradients are as from route(), if it chose these, to rounding.
Routes route_to(Tape& tape, const Var& logits, std::int64_t chosen, const RouteOptions& options,
                std::span<const std::int32_t> experts);
/// Returns log sigmoid(x) of x (M, C) f32, (M, C) f32.
Var log_sigmoid(Tape& tape, const Var& x);
/// The samples of the M tokens, which may be some of the samples' tokens.
struct TokenSamples {
  Block starts;                              ///< (S + 1) i32: the first of the M tokens of each sample; the last is M
  Block of_token;                            ///< (M) i32: each token's sample
  Block per_route;                           ///< (S, 1) f32: E / (k T), T all tokens of the sample
  std::array<Communicator*, 2> groups = {};  ///< which have the samples' other tokens; null: none
};
/// Returns for each token the loads of the experts in its sample: (M, E) f32, E times an expert's share of the sample's
/// routes, so that their mean is 1. Without a gradient.
Var sample_loads(Tape& tape, const Routes& routes, const TokenSamples& samples);

/// Weights of a layer's experts, gated feed-forward networks; or of a rank's experts, whose number is then E.
struct ExpertMatrices {
  Parameter* in = nullptr;   ///< (E 2F, C), E groups [gate | up]
  Parameter* out = nullptr;  ///< (E C, F), E groups
  GluGate gate = GluGate::silu;
  Parameter* in_bias = nullptr;   ///< (E, 2F); null: none
  Parameter* out_bias = nullptr;  ///< (E, C), times the weight, too; null: none
};
/// Returns (M, C) act from x (M, C) act: the sum over each token's experts of weight times out(glu(in(x))). The
/// experts' matrices and their biases are trained or frozen together.
///
/// The weight multiplies an expert's values before its last product, which is linear. For the backward pass the tape
/// keeps x and the first products' results, (R, 2F) act; the other values of routes are computed again.
///
/// With `group`, host ranks that each own an equal part of the experts, `experts` are this rank's, x and the routes are
/// of its tokens, to all experts, and rows travel to their experts' owners and back (ExpertRows).
Var expert_networks(Tape& tape, const Var& x, const Routes& routes, const ExpertMatrices& experts,
                    Communicator* group = nullptr);

}  // namespace maestro
