// SPDX-License-Identifier: Apache-2.0
// Attention of a sequence's new rows over a cache of keys and values, by maestro's kernels.
#pragma once

#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

/// Computes CachedAttention; all tensors are in device memory, 16-byte aligned. Results are bitwise equal from run to
/// run. Throws DeviceError for a refused shape (flash_refusal()).
void cached_attention(const Launch& at, const CachedAttention& op);

}  // namespace maestro::cuda
