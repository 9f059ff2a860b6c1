// SPDX-License-Identifier: Apache-2.0
// Addition of rows to the table rows that keys name, in a fixed order: the gradients of lookups.
#pragma once

#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

/// Computes to (N, C)[keys[i]] += scale values (M, C)[i] for all i whose key is not negative; keys (M) on the device,
/// below N. Both are f32 or bf16. Rows with equal keys are added in f32 in ascending order, in groups that depend only
/// on the keys, scaled and rounded once.
void add_rows_by_key(const Launch& at, const Tensor& values, const std::int32_t* keys, const Tensor& to,
                     float scale = 1);

}  // namespace maestro::cuda
