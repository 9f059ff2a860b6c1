// SPDX-License-Identifier: Apache-2.0
// Sums of squares of flat vectors. For the kernel source that launches them.
#pragma once

#include "runtime/ops/cuda/element_access.cuh"

namespace maestro::cuda {

inline constexpr int square_blocks = 1024;  ///< blocks, at most; the order of the sum does not depend on the device
inline constexpr int square_width = 4;

/// Writes the block's partial sum of squares, in f64, at its index.
__global__ void __launch_bounds__(flat_threads)
    square_kernel(const float* values, std::int64_t count, double* of_blocks) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x * square_width;
  double sum = 0;
  std::int64_t at = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * square_width;
  const bool packed = reinterpret_cast<std::uintptr_t>(values) % 16 == 0;
  MAESTRO_UNROLL_4
  for (; at < count; at += step) {
    float v[square_width] = {};
    if (packed && at + square_width <= count) {
      load_floats(values + at, v);
    } else {
      for (int i = 0; i < square_width && at + i < count; ++i) v[i] = values[at + i];
    }
    MAESTRO_UNROLL
    for (int i = 0; i < square_width; ++i) sum += static_cast<double>(v[i]) * static_cast<double>(v[i]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) of_blocks[blockIdx.x] = sum;
}

/// Sets *to = (add ? *to : 0) + the sum of `of_blocks`, in a single block.
__global__ void __launch_bounds__(flat_threads)
    square_total_kernel(const double* of_blocks, int count, double* to, bool add) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) sum += of_blocks[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *to = add ? *to + sum : sum;
}

}  // namespace maestro::cuda
