// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/latent_attention.hpp"

namespace maestro {

namespace {

constexpr double latent_epsilon = 1e-6;  // of DeepSeek's classes, whatever the other norms have

}  // namespace

Var latent_products(Tape& tape, const Var& x, const LatentWeights& weights, const LatentShape& shape) {
  Var queries = x;
  if (weights.query_in.weight != nullptr) {
    queries = rms_norm(tape, linear(tape, x, weights.query_in), *weights.query_norm, latent_epsilon);
  }
  queries = linear(tape, queries, weights.query_out);
  const std::int64_t rank = weights.key_norm->shape().elements();
  const Var both = linear(tape, x, weights.key_in);
  const Var latent = rms_norm(tape, slice(tape, both, 0, rank), *weights.key_norm, latent_epsilon);
  const Var rope = slice(tape, both, rank, shape.rope_size);
  return latent_heads(tape, queries, linear(tape, latent, weights.key_out), rope, shape);
}

}  // namespace maestro
