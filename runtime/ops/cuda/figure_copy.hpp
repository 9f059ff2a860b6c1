// SPDX-License-Identifier: Apache-2.0
// Copy of a figure between two places in pinned memory, in stream order.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/ops/operator_table.hpp"

namespace maestro::cuda {

/// Sets *to = *from, both in pinned host memory that the device sees; a copy by CUDA's API would make the host wait.
void copy_figure(cudaStream_t stream, const LossSums* from, LossSums* to);

}  // namespace maestro::cuda
