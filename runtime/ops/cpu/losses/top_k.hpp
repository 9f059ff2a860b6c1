// SPDX-License-Identifier: Apache-2.0
// The k largest logits per row, for teachers that send only these.
#pragma once

#include "runtime/core/tensor.hpp"
#include "runtime/ops/cpu/isa.hpp"

namespace maestro::cpu {

/// Finds the k largest among the first `columns` (0: all) logits per row (M, V) f32: values (M, k) f32 descending and
/// indices (M, k) i32, 1 <= k <= columns. Equal values are ordered by index. A NaN counts as larger than any number, so
/// that it is seen. Thread-safe.
void top_k(Isa isa, const Tensor& logits, const Tensor& values, const Tensor& indices, std::int64_t columns = 0);

}  // namespace maestro::cpu
