// SPDX-License-Identifier: Apache-2.0
#include "sections/experts.hpp"

namespace maestro {

Var shared_expert(Tape& tape, const Var& x, const ExpertWeights& weights, GluGate gate) {
  const Var y = linear(tape, glu(tape, linear(tape, x, weights.shared_in), gate), weights.shared_out);
  if (weights.shared_gate == nullptr) return y;
  return mul(tape, y, sigmoid(tape, linear(tape, x, *weights.shared_gate, nullptr)));
}

namespace {

/// Returns the routes of scores (M, E) f32: the router's, or to experts that the pass's hook names.
Routes routes_of(Tape& tape, const Var& scores, const ExpertWeights& weights, const ExpertOptions& options) {
  const Tensor bias = weights.bias == nullptr ? Tensor() : weights.bias->value();
  RouteHook* const hook = options.routes.hook;
  if (hook == nullptr) return route(tape, scores, options.per_token, options.router, bias);
  RoutedRows rows = options.routes.rows;
  rows.per_token = options.per_token;
  rows.experts = scores.value().columns();
  const std::vector<std::int32_t> named = hook->named(rows);
  const Routes routes = named.empty() ? route(tape, scores, options.per_token, options.router, bias)
                                      : route_to(tape, scores, options.per_token, options.router, named);
  hook->taken(rows, tape.ops(), routes.experts.tensor());
  return routes;
}

}  // namespace

Var routed_experts(Tape& tape, const Var& x, const ExpertWeights& weights, const ExpertOptions& options) {
  // In fp32, whatever the section's precision: a rounded score may change the choice.
  const Var scores = linear(tape, converted(tape, x, DType::f32), *weights.router, weights.router_bias, DType::f32);
  const Routes routes = routes_of(tape, scores, weights, options);
  if (options.balance != nullptr) options.balance->add(tape, scores, routes, {weights.loads, weights.bias});
  return expert_networks(tape, x, routes, {weights.in, weights.out, options.gate, weights.in_bias, weights.out_bias},
                         options.group);
}

Var expert_network(Tape& tape, const Var& x, const ExpertWeights& weights, const ExpertOptions& options) {
  const Var y = routed_experts(tape, x, weights, options);
  if (weights.shared_in.weight == nullptr) return y;
  return converted(tape, add(tape, y, shared_expert(tape, x, weights, options.gate)), tape.compute());
}

}  // namespace maestro
