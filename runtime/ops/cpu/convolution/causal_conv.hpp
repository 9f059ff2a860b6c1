// SPDX-License-Identifier: Apache-2.0
// Causal convolutions row by row, in the order of rows: all results read their rows by the same kernel, so that they
// have the same bits with a cache, over context parts and in any packing.
#pragma once

#include "runtime/ops/cpu/isa.hpp"
#include "runtime/ops/cpu/scratch.hpp"
#include "runtime/ops/operators.hpp"

namespace maestro::cpu {

/// Run the operators. Scratch does not grow with the rows. Thread-safe.
void causal_conv(Isa isa, ScratchPool& scratch, const CausalConv& op);
void causal_conv_backward(Isa isa, ScratchPool& scratch, const CausalConvBackward& op);
void cached_conv(Isa isa, ScratchPool& scratch, const CachedConv& op);

}  // namespace maestro::cpu
