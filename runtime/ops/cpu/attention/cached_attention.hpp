// SPDX-License-Identifier: Apache-2.0
// Attention from a sequence's new rows to the keys and values of all its rows (CachedAttention), with the online
// softmax and the arithmetic of attention.hpp.
#pragma once

#include "runtime/ops/cpu/isa.hpp"
#include "runtime/ops/cpu/scratch.hpp"
#include "runtime/ops/operators.hpp"

namespace maestro::cpu {

/// Runs the operator, as AttentionEngine does with `isa` and `bf16`. Scratch does not grow with the sequence.
/// Thread-safe.
void cached_attention(Isa isa, Bf16Products bf16, ScratchPool& scratch, const CachedAttention& op);

}  // namespace maestro::cpu
