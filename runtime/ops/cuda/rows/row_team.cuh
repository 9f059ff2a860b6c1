// SPDX-License-Identifier: Apache-2.0
// Rows that a warp or a block shares. For kernel sources.
#pragma once

#include "runtime/ops/cuda/element_access.cuh"

namespace maestro::cuda {

using NormKind = NormTiles::Kind;

/// Threads that share a row, and this thread's index among them.
template <NormKind Kind>
struct RowTeam {
  static constexpr bool warp = Kind == NormKind::warp;
  __device__ static int member() { return warp ? lane_index() : static_cast<int>(threadIdx.x); }
  __device__ static int members() { return warp ? warp_size : static_cast<int>(blockDim.x); }
  __device__ static std::int64_t first_row() {
    return warp ? std::int64_t{blockIdx.x} * warp_count() + warp_index() : std::int64_t{blockIdx.x};
  }
  __device__ static std::int64_t rows_at_once() {
    return warp ? std::int64_t{gridDim.x} * warp_count() : std::int64_t{gridDim.x};
  }
  __device__ static float sum(float value) {
    if constexpr (warp) {
      return warp_sum(value);
    } else {
      return block_sum(value);
    }
  }
  __device__ static float max(float value) {
    if constexpr (warp) {
      return warp_max(value);
    } else {
      return block_max(value);
    }
  }
};

}  // namespace maestro::cuda
