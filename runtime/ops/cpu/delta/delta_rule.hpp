// SPDX-License-Identifier: Apache-2.0
// The gated delta rule, sample by sample, key head by key head, chunk by chunk.
#pragma once

#include "runtime/ops/cpu/isa.hpp"
#include "runtime/ops/cpu/scratch.hpp"
#include "runtime/ops/operators.hpp"

namespace maestro::cpu {

/// Run the operators. Scratch does not grow with the rows. Thread-safe.
void delta_rule(Isa isa, ScratchPool& scratch, const DeltaRule& op);
void delta_rule_backward(Isa isa, ScratchPool& scratch, const DeltaRuleBackward& op);
void cached_delta(Isa isa, ScratchPool& scratch, const CachedDelta& op);

}  // namespace maestro::cpu
