// SPDX-License-Identifier: Apache-2.0
// Attention of new rows of a sequence over a cache of keys and values, by own kernels.
#pragma once

#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

/// As CachedAttention; all tensors in device memory, 16-byte aligned. Results are the same bit for bit from run to run.
/// Throws DeviceError for a refused shape (flash_refusal()).
void cached_attention(const Launch& at, const CachedAttention& op);

}  // namespace maestro::cuda
