// SPDX-License-Identifier: Apache-2.0
// A figure of pinned memory to another place of pinned memory, in the order of the stream.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/ops/operator_table.hpp"

namespace maestro::cuda {

/// *to = *from, both in pinned memory of the host that the device sees: a copy by CUDA's own call would make the
/// host wait.
void copy_figure(cudaStream_t stream, const LossSums* from, LossSums* to);

}  // namespace maestro::cuda
