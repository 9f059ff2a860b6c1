// SPDX-License-Identifier: Apache-2.0
#include "sections/experts.hpp"

namespace maestro {

namespace {

/// Returns the shared expert's result, (M, C) act.
Var shared_expert(Tape& tape, const Var& x, const ExpertWeights& weights, GluGate gate) {
  const Var y = linear(tape, glu(tape, linear(tape, x, weights.shared_in), gate), weights.shared_out);
  if (weights.shared_gate == nullptr) return y;
  return mul(tape, y, sigmoid(tape, linear(tape, x, *weights.shared_gate, nullptr)));
}

}  // namespace

Var expert_network(Tape& tape, const Var& x, const ExpertWeights& weights, const ExpertOptions& options) {
  // In fp32, whatever the section's precision: a rounded score may change the choice.
  const Var scores = linear(tape, converted(tape, x, DType::f32), *weights.router, weights.router_bias, DType::f32);
  const Tensor bias = weights.bias == nullptr ? Tensor() : weights.bias->value();
  const Routes routes = route(tape, scores, options.per_token, options.router, bias);
  if (options.balance != nullptr) options.balance->add(tape, scores, routes, {weights.loads, weights.bias});
  const Var y =
      expert_networks(tape, x, routes, {weights.in, weights.out, options.gate, weights.in_bias, weights.out_bias});
  if (weights.shared_in.weight == nullptr) return y;
  return converted(tape, add(tape, y, shared_expert(tape, x, weights, options.gate)), tape.compute());
}

}  // namespace maestro
