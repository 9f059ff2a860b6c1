// Kernels on flat f32 ranges: the optimizer, norms and sums of gradients.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

/// value -= lr decay value; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// value -= step_size m / (sqrt(v) inverse_root + epsilon); gradient = 0, with g = gradient gradient_scale.
struct AdamWCall {
  float* value;
  float* gradient;
  float* mean;
  float* variance;
  std::int64_t count;
  float keep;          ///< 1 - lr * weight_decay
  float step_size;     ///< lr / (1 - beta1^step)
  float inverse_root;  ///< 1 / sqrt(1 - beta2^step)
  float beta1;
  float beta2;
  float one_less_beta1;  ///< 1 - beta1, rounded once from f64
  float one_less_beta2;
  float epsilon;
  float gradient_scale;
};

struct FlatKernels {
  void (*adamw)(const AdamWCall& call);
  double (*sum_of_squares)(const float* values, std::int64_t count);
};
MAESTRO_KERNELS(FlatKernels, flat_kernels)

}  // namespace maestro::cpu
