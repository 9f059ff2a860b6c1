// SPDX-License-Identifier: Apache-2.0
// Latent attention's heads as differentiable operators. A part of functions.hpp, whose rules hold here.
#pragma once

#include "runtime/ops/functions.hpp"

namespace maestro {

/// Returns the packed heads (M, 3 H D) act, for attention with H key heads, of queries (M, H D), keys
/// (M, H (D - P + V)) and rope (M, P), all act (LatentHeads).
Var latent_heads(Tape& tape, const Var& queries, const Var& keys, const Var& rope, const LatentShape& shape);
/// Returns the first V of each head's D columns: (M, H V) of x (M, H D).
Var value_columns(Tape& tape, const Var& x, const LatentShape& shape);

}  // namespace maestro
