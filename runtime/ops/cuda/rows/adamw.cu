// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "runtime/ops/adamw_coefficients.hpp"
#include "runtime/ops/cuda/element_access.cuh"
#include "runtime/ops/cuda/kernels.hpp"

namespace maestro::cuda {

namespace {

constexpr int adamw_width = 4;

/// Four vectors in, five out: 28 bytes of each element at the least, 30 with the copy.
template <bool Packed>
__global__ void __launch_bounds__(flat_threads) adamw_kernel(AdamWVectors vectors, element::AdamW step) {
  constexpr int width = Packed ? adamw_width : 1;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x * width;
  for (std::int64_t at = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * width; at < vectors.count;
       at += stride) {
    if (at + width > vectors.count) {
      for (std::int64_t i = at; i < vectors.count; ++i) {
        step.update(vectors.value[i], vectors.gradient[i], vectors.mean[i], vectors.variance[i]);
        vectors.gradient[i] = 0;
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
    for (int i = 0; i < width; ++i) {
      step.update(value[i], gradient[i], mean[i], variance[i]);
      gradient[i] = 0;
    }
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
  const auto fits = [](const auto* memory) { return aligned(memory, adamw_width, sizeof *memory, adamw_width); };
  const bool packed = fits(vectors.value) && fits(vectors.gradient) && fits(vectors.mean) && fits(vectors.variance) &&
                      fits(vectors.copy);
  with_flag(packed, [&](auto flag) {
    constexpr bool Packed = decltype(flag)::value;
    const unsigned blocks = flat_blocks(vectors.count, flat_threads * (Packed ? adamw_width : 1), at.multiprocessors);
    launch({"adamw", blocks, flat_threads, 0, at.stream}, adamw_kernel<Packed>, vectors, adamw_coefficients(step));
  });
}

}  // namespace maestro::cuda
