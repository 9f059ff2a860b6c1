// SPDX-License-Identifier: Apache-2.0
// Biases of groups of rows, as expert_operators.hpp. Thread-safe.
#pragma once

#include "runtime/ops/cpu/isa.hpp"
#include "runtime/ops/cpu/scratch.hpp"
#include "runtime/ops/expert_operators.hpp"

namespace maestro::cpu {

void grouped_bias(Isa isa, ScratchPool& pool, const GroupedBias& op);
void grouped_bias_backward(Isa isa, ScratchPool& pool, const GroupedBiasBackward& op);

}  // namespace maestro::cpu
