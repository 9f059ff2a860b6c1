// SPDX-License-Identifier: Apache-2.0
// The k largest logits of each row, for teachers that send only those.
#pragma once

#include "runtime/core/tensor.hpp"
#include "runtime/ops/cpu/isa.hpp"

namespace maestro::cpu {

/// Finds the k largest of the first `columns` (0: all) of each row of logits (M, V) f32: values (M, k) f32 descending
/// and indices (M, k) i32, 1 <= k <= columns; of equal values the lower index comes first. A NaN counts as larger than
/// any number, so that it is seen rather than hidden. Thread-safe.
void top_k(Isa isa, const Tensor& logits, const Tensor& values, const Tensor& indices, std::int64_t columns = 0);

}  // namespace maestro::cpu
