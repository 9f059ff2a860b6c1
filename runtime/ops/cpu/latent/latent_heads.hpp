// SPDX-License-Identifier: Apache-2.0
// The heads of latent attention, as latent_operators.hpp. Thread-safe.
#pragma once

#include "runtime/ops/latent_operators.hpp"

namespace maestro::cpu {

void latent_heads(const LatentHeads& op);
void latent_heads_backward(const LatentHeadsBackward& op);

}  // namespace maestro::cpu
