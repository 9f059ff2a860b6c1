// SPDX-License-Identifier: Apache-2.0
// The second pass of sums over rows: adds the blocks' partial sums in a fixed order.
#pragma once

#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

/// (rows, columns) f32
struct PartialRows {
  const float* values = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
/// Computes into (columns) f32 += the column sums.
void add_partial_rows(const Launch& at, const PartialRows& partial, float* into);

}  // namespace maestro::cuda
