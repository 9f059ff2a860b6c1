// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "runtime/ops/adamw_coefficients.hpp"
#include "runtime/ops/cuda/element_access.cuh"
#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

namespace {

constexpr int adamw_width = 4;

/// AdamWVectors with moments of type Moment.
template <class Moment>
struct Operands {
  float* value;
  float* gradient;
  Moment* mean;
  Moment* variance;
  bfloat16* copy;
  std::int64_t count;
};

template <class Moment>
__device__ __forceinline__ void update(const element::AdamW& step, float& value, float& gradient, float& mean,
                                       float& variance) {
  step.update(value, gradient, mean, variance);
  if constexpr (sizeof(Moment) == sizeof(bfloat16)) step.rounded_at_random(gradient, mean, variance);
  gradient = 0;
}

/// Reads four vectors and writes five: at least 28 bytes per element, 20 with moments in bf16; 2 more with the copy.
template <bool Packed, class Moment>
__global__ void __launch_bounds__(flat_threads) adamw_kernel(Operands<Moment> vectors, element::AdamW step) {
  constexpr int width = Packed ? adamw_width : 1;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x * width;
  for (std::int64_t at = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * width; at < vectors.count;
       at += stride) {
    if (at + width > vectors.count) {
      for (std::int64_t i = at; i < vectors.count; ++i) {
        float mean = to_float(vectors.mean[i]);
        float variance = to_float(vectors.variance[i]);
        update<Moment>(step, vectors.value[i], vectors.gradient[i], mean, variance);
        vectors.mean[i] = from_float<Moment>(mean);
        vectors.variance[i] = from_float<Moment>(variance);
        if (vectors.copy != nullptr) vectors.copy[i] = from_float<bfloat16>(vectors.value[i]);
      }
      continue;
    }
    float value[width];
    float gradient[width];
    float mean[width];
    float variance[width];
    load_floats(vectors.value + at, value);
    load_floats(vectors.gradient + at, gradient);
    load_floats(vectors.mean + at, mean);
    load_floats(vectors.variance + at, variance);
    MAESTRO_UNROLL
    for (int i = 0; i < width; ++i) update<Moment>(step, value[i], gradient[i], mean[i], variance[i]);
    store_floats(vectors.value + at, value);
    store_floats(vectors.gradient + at, gradient);
    store_floats(vectors.mean + at, mean);
    store_floats(vectors.variance + at, variance);
    if (vectors.copy != nullptr) store_floats(vectors.copy + at, value);
  }
}

}  // namespace

void adamw(const Launch& at, const AdamWVectors& vectors, const AdamWStep& step) {
  if (vectors.count == 0) return;
  with_type(vectors.mean.dtype(), [&](auto type) {
    using Moment = typename decltype(type)::type;
    const Operands<Moment> operands{
        vectors.value, vectors.gradient, vectors.mean.data<Moment>(), vectors.variance.data<Moment>(),
        vectors.copy,  vectors.count};
    const auto fits = [](const auto* memory) { return aligned(memory, adamw_width, sizeof *memory, adamw_width); };
    const bool packed = fits(operands.value) && fits(operands.gradient) && fits(operands.mean) &&
                        fits(operands.variance) && fits(operands.copy);
    with_flag(packed, [&](auto flag) {
      constexpr bool Packed = decltype(flag)::value;
      const unsigned blocks = flat_blocks(vectors.count, flat_threads * (Packed ? adamw_width : 1), at.multiprocessors);
      launch({"adamw", blocks, flat_threads, 0, at.stream}, adamw_kernel<Packed, Moment>, operands,
             adamw_coefficients(step));
    });
  });
}

}  // namespace maestro::cuda
