// SPDX-License-Identifier: Apache-2.0
// The mixture of experts in a layer (Shazeer et al. 2017): a router chooses some of many gated feed-forward networks
// for each row and weighs their results. A shared expert, if any, sees every row.
//
// Over tensor ranks every network is cut as a dense one is: a rank has its columns of each expert. All ranks choose the
// same experts, because they have the same bits of a row's scores.
//
// If ranks share the experts instead (Layout::expert), a rank has all columns of its experts and chooses the experts of
// its own rows, which travel to their owners and back (ExpertRows). A shared expert remains cut over tensor ranks.
#pragma once

#include "sections/expert_balance.hpp"
#include "sections/expert_routes.hpp"

namespace maestro {

/// Weights of a tensor rank: its rows of `in` and shared_in, its columns of `out` and shared_out; the rest is not cut.
/// If ranks share the experts, `in`, `out` and their biases have the rows of the rank's experts.
struct ExpertWeights {
  Parameter* router = nullptr;       ///< (E, C); null: the layer has a dense network
  Parameter* router_bias = nullptr;  ///< (E); null: none
  Parameter* bias = nullptr;         ///< (E), added to scores only for the choice; null: none
  Parameter* in = nullptr;           ///< (E 2F, C), E groups, gate and up as GluGate states
  Parameter* out = nullptr;          ///< (E C, F), E groups
  Parameter* in_bias = nullptr;      ///< (E, 2F), cut by columns; null: none
  Parameter* out_bias = nullptr;     ///< (E, C); null: none, or added by another rank
  Affine shared_in;                  ///< (2 Fs, C) [gate | up]; without weight: no shared expert
  Affine shared_out;                 ///< (C, Fs)
  Parameter* loads = nullptr;        ///< (E), stepped by counts in training with a balance; null: none
  Parameter* shared_gate = nullptr;  ///< (1, C); null: the shared expert's result is used as it is
};

struct ExpertOptions {
  std::int64_t per_token = 1;
  RouteOptions router;
  GluGate gate = GluGate::silu;
  ExpertBalance* balance = nullptr;  ///< losses of the pass; null: none
  PassRoutes routes = {};
  Communicator* group = nullptr;  ///< ranks that share the experts; null: none
};

/// Computes (M, C) act -> (M, C) act, without the shared expert.
[[nodiscard]] Var routed_experts(Tape& tape, const Var& x, const ExpertWeights& weights, const ExpertOptions& options);
/// Computes (M, C) act -> (M, C) act; on a tensor rank its summand of the group's sum.
[[nodiscard]] Var shared_expert(Tape& tape, const Var& x, const ExpertWeights& weights, GluGate gate);
/// Computes both, if there is a shared expert.
[[nodiscard]] Var expert_network(Tape& tape, const Var& x, const ExpertWeights& weights, const ExpertOptions& options);

}  // namespace maestro
