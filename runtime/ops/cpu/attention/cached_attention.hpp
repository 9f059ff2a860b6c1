// SPDX-License-Identifier: Apache-2.0
// Attention of new rows to a cache of keys and values.
#pragma once

#include "runtime/ops/operators.hpp"

namespace maestro::cpu {

/// Writes the new rows' keys and values to the cache, then their attention to op.out.
void cached_attention(const CachedAttention& op);

}  // namespace maestro::cpu
