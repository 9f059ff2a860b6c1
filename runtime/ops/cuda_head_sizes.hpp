// SPDX-License-Identifier: Apache-2.0
// Head sizes that attention on CUDA devices supports; available without CUDA, so that a job can be refused before any
// device is opened.
#pragma once

#include <cstdint>
#include <string>

namespace maestro {

/// Returns the reason why the CUDA backend does not support heads of this size, with the nearest supported size; empty
/// if it does. The backend's OperatorTable::attention_refusal() reports the same.
[[nodiscard]] std::string cuda_head_size_refusal(std::int64_t head_size);

}  // namespace maestro
