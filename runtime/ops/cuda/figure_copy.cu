// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/figure_copy.hpp"

#include "runtime/ops/cuda/cuda_language.hpp"

namespace maestro::cuda {

namespace {

__global__ void copy_figure_kernel(const LossSums* from, LossSums* to) {
  if (threadIdx.x == 0) *to = *from;
}

}  // namespace

void copy_figure(cudaStream_t stream, const LossSums* from, LossSums* to) {
  launch({"copy_figure", 1, warp_size, 0, stream}, copy_figure_kernel, from, to);
}

}  // namespace maestro::cuda
