// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/attention/flash_attention.hpp"
#include "runtime/ops/cuda/device_error.hpp"
#include "runtime/ops/cuda/launch_geometry.hpp"
#include "runtime/ops/cuda_head_sizes.hpp"

namespace maestro::cuda {

std::string flash_refusal(const AttentionShape& shape) {
  if (shape.window > 0 && !shape.causal) return "a window of keys needs a causal mask";
  return cuda_head_size_refusal(shape.head_size);
}

void check_flash(const AttentionShape& shape, std::initializer_list<Tensor> tensors) {
  const std::string refusal = flash_refusal(shape);
  if (!refusal.empty()) throw DeviceError("attention: " + refusal);
  for (const Tensor& tensor : tensors) {
    if (!aligned(tensor.raw(), 0, 1, 16)) {
      throw DeviceError("attention: a tensor does not begin at a multiple of 16 bytes");
    }
  }
}

}  // namespace maestro::cuda
