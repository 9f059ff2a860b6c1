// SPDX-License-Identifier: Apache-2.0
// Tensors as kernels receive them.
#pragma once

#include "runtime/core/tensor.hpp"
#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

[[nodiscard]] inline In in(const Tensor& tensor) {
  return {tensor.raw(), tensor.dtype() == DType::bf16};
}
[[nodiscard]] inline Out out(const Tensor& tensor) {
  return {tensor.raw(), tensor.dtype() == DType::bf16};
}

}  // namespace maestro::cpu
