// SPDX-License-Identifier: Apache-2.0
// Head sizes that attention on CUDA devices has kernels for; available without CUDA, so that a job can be refused
// before any device is opened.
#pragma once

#include <cstdint>
#include <string>

namespace maestro {

/// Returns why the CUDA backend has no attention for heads of this size, with the nearest supported size; empty if it
/// has. The backend's OperatorTable::attention_refusal() reports the same.
[[nodiscard]] std::string cuda_head_size_refusal(std::int64_t head_size);

}  // namespace maestro
