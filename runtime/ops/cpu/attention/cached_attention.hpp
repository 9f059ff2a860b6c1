// SPDX-License-Identifier: Apache-2.0
// Attention from a sequence's new rows to the keys and values of all its rows (CachedAttention), with the online
// softmax of attention.hpp. Storage is f32 or bf16, arithmetic is f32.
#pragma once

#include "runtime/ops/cpu/isa.hpp"
#include "runtime/ops/cpu/scratch.hpp"
#include "runtime/ops/operators.hpp"

namespace maestro::cpu {

/// Runs the operator. Scratch does not grow with the sequence. Thread-safe.
void cached_attention(Isa isa, ScratchPool& scratch, const CachedAttention& op);

}  // namespace maestro::cpu
