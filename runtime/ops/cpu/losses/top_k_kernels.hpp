// SPDX-License-Identifier: Apache-2.0
// The vectorised part of top_k: skips values that cannot be among the k largest.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

struct TopKKernels {
  /// Returns the smallest i in [from, count) whose value is not <= threshold (so NaN is found too), or count.
  std::int64_t (*next_above)(const float* values, std::int64_t from, std::int64_t count, float threshold);
};
MAESTRO_KERNELS(TopKKernels, top_k_kernels)

}  // namespace maestro::cpu
