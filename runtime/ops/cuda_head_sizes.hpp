// SPDX-License-Identifier: Apache-2.0
// What attention on CUDA devices has kernels for; known without CUDA, so that a job can be refused before any device is
// opened.
#pragma once

#include <cstdint>
#include <string>

namespace maestro {

/// Why the CUDA backend has no attention for heads of this size, with the nearest that it has; empty: it has. The
/// backend's OperatorTable::attention_refusal() reports the same.
[[nodiscard]] std::string cuda_head_size_refusal(std::int64_t head_size);

}  // namespace maestro
