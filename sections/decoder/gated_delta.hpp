// SPDX-License-Identifier: Apache-2.0
// The gated delta rule between two products (Gated DeltaNet, Yang et al. 2024; Qwen3.5): queries, keys and values are
// filtered over their last rows, and the rule's result is normed by head and gated, y = w RMS(o) silu(z).
#pragma once

#include "sections/transformer_block.hpp"

namespace maestro {

/// Returns the rule's gated result (M_c, Hv dv) act of x (M_c, 2 Hk dk + 2 Hv dv + 2 Hv) act = [q | k | v | z | b | a],
/// with a layer's cache if there is one. Heads are the tensor rank's; over context ranks, rows that the filter lacks
/// are exchanged, and rows for heads.
[[nodiscard]] Var gated_delta(Tape& tape, const Var& x, const BlockWeights& weights, const BlockOptions& options,
                              const SequenceLayout& layout);

}  // namespace maestro
