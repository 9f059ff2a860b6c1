// SPDX-License-Identifier: Apache-2.0
// Kernels on flat ranges: the optimizer, and the norms and sums of gradients.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"
#include "runtime/ops/element_math.hpp"

namespace maestro::cpu {

/// Updates each parameter, then sets its gradient to 0.
struct AdamWCall {
  float* value;
  float* gradient;
  Out mean;      ///< f32 or bf16
  Out variance;  ///< same type as `mean`
  std::int64_t count;
  element::AdamW step;
};

struct FlatKernels {
  void (*adamw)(const AdamWCall& call);
  double (*sum_of_squares)(const float* values, std::int64_t count);
};
MAESTRO_KERNELS(FlatKernels, flat_kernels)

}  // namespace maestro::cpu
