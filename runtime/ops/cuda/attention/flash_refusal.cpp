// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/attention/flash_attention.hpp"
#include "runtime/ops/cuda_head_sizes.hpp"

namespace maestro::cuda {

std::string flash_refusal(const AttentionShape& shape) {
  return cuda_head_size_refusal(shape.head_size);
}

}  // namespace maestro::cuda
