// SPDX-License-Identifier: Apache-2.0
// Latent attention (DeepSeek-V2, 2024, section 2.1): the heads' keys and values are products of one normed latent, and
// the columns next to it turn and are a part of every key; queries may be products of a latent, too.
//
// The heads are expanded and then pass through attention as any others: its caches hold H keys and values for each row,
// and a value has a key's D columns, D - V of them zeros, so that products with values and their caches are D / V times
// as large as they need be (1.5 in DeepSeek's models).
#pragma once

#include "runtime/ops/latent_functions.hpp"

namespace maestro {

/// Weights of a tensor rank: its rows of query_out and key_out; the rest is not cut.
struct LatentWeights {
  Affine query_in;                  ///< (Rq, C); without weight: query_out reads the stream
  Parameter* query_norm = nullptr;  ///< (Rq)
  Affine query_out;                 ///< (H D, Rq), or (H D, C)
  Affine key_in;                    ///< (R + P, C); without weight: attention is not latent
  Parameter* key_norm = nullptr;    ///< (R)
  Affine key_out;                   ///< (H (D - P + V), R)

  [[nodiscard]] bool given() const { return key_in.weight != nullptr; }
};

/// Returns the packed heads of attention, (M, 3 H D) act, from x (M, C) act. H counts the heads of the tensor rank.
[[nodiscard]] Var latent_products(Tape& tape, const Var& x, const LatentWeights& weights, const LatentShape& shape);

}  // namespace maestro
