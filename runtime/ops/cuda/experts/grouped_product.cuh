// SPDX-License-Identifier: Apache-2.0
// Products of rows with their group's matrix, in tiles of 32 x 32, summed in f32. Which rows a group has is read
// on the device: the grid has as many blocks as any division of the rows into groups needs, and the rest end at once.
// For kernel sources.
#pragma once

#include "runtime/core/mxfp4.hpp"
#include "runtime/ops/cuda/element_access.cuh"
#include "runtime/ops/cuda/products/lt_plain_product.cuh"

namespace maestro::cuda {

/// Rows of a group that share a tile.
struct GroupTile {
  int group = -1;  ///< -1: none
  std::int64_t first = 0;
  std::int64_t rows = 0;  ///< rows of the group from `first` on
};

__device__ inline GroupTile group_tile(const std::int32_t* offsets, int groups, std::int64_t tile) {
  for (int group = 0; group < groups; ++group) {
    const std::int64_t rows = offsets[group + 1] - offsets[group];
    const std::int64_t tiles = (rows + plain_tile - 1) / plain_tile;
    if (tile < tiles) return {group, offsets[group] + tile * plain_tile, rows - tile * plain_tile};
    tile -= tiles;
  }
  return {};
}

/// A group's matrix (N, K) in MXFP4, as a factor; `backward`: its outer side is K.
struct BlockFactor {
  const std::uint8_t* blocks;
  const std::uint8_t* scales;
  std::int64_t k;
  std::int64_t outer;
  bool backward;

  __device__ __forceinline__ float at(std::int64_t out, std::int64_t in) const {
    const std::int64_t row = backward ? in : out, column = backward ? out : in;
    const std::int64_t block = row * (k / 32) + column / 32;
    const std::uint32_t byte = blocks[block * 16 + column % 32 / 2];
    return mxfp4_number(column % 2 == 0 ? byte & 15U : byte >> 4, scales[block]);
  }
};
__device__ inline void load_plain_tile(float* tile, const BlockFactor& factor, std::int64_t first_outer,
                                       std::int64_t first_inner, std::int64_t inner) {
  for (int i = static_cast<int>(threadIdx.x); i < plain_tile * plain_tile; i += plain_threads) {
    const int close = i % plain_tile, far = i / plain_tile;  // neighbouring threads read a row's neighbours
    const int in = factor.backward ? far : close, out = factor.backward ? close : far;
    const bool inside = first_outer + out < factor.outer && first_inner + in < inner;
    tile[in * plain_stride + out] = inside ? factor.at(first_outer + out, first_inner + in) : 0.0F;
  }
}

/// The groups' matrices (N, K), in the products' dtype or in blocks.
template <class T>
struct PlainGroups {
  const T* w;  // (G N, K)
  __device__ PlainFactor<T> factor(int group, std::int64_t n, std::int64_t k, bool backward) const {
    const T* matrix = w + group * n * k;
    return backward ? PlainFactor<T>{matrix, 1, k, k} : PlainFactor<T>{matrix, k, 1, n};
  }
};
struct BlockGroups {
  const std::uint8_t* blocks;  // (G N, K / 32, 16)
  const std::uint8_t* scales;  // (G N, K / 32)
  __device__ BlockFactor factor(int group, std::int64_t n, std::int64_t k, bool backward) const {
    const std::int64_t before = group * n * (k / 32);
    return {blocks + before * 16, scales + before, k, backward ? k : n, backward};
  }
};

/// Adds the products of a tile's `inner` elements: sum[j] belongs to the element `fast` of the factor a and the element
/// slow + j of the factor b. Calls __syncthreads().
template <class Factor, class T>
__device__ void add_tile_products(const Factor& a, std::int64_t first_a, const PlainFactor<T>& b, std::int64_t inner,
                                  float (&sum)[plain_columns_of_thread]) {
  MAESTRO_SHARED(float, tile_a, plain_tile* plain_stride);
  MAESTRO_SHARED(float, tile_b, plain_tile* plain_stride);
  const int fast = static_cast<int>(threadIdx.x) % plain_tile;
  const int slow = static_cast<int>(threadIdx.x) / plain_tile * plain_columns_of_thread;
  for (std::int64_t first = 0; first < inner; first += plain_tile) {
    load_plain_tile(tile_a, a, first_a, first, inner);
    load_plain_tile(tile_b, b, 0, first, inner);
    __syncthreads();
    for (int i = 0; i < plain_tile; ++i) {
      for (int j = 0; j < plain_columns_of_thread; ++j) {
        sum[j] += tile_a[i * plain_stride + fast] * tile_b[i * plain_stride + slow + j];
      }
    }
    __syncthreads();
  }
}

/// y = x times the matrix of each row's group: w^T, or w with `backward`.
template <class T, class Groups>
struct GroupedRows {
  const T* x;  // (R, inner)
  Groups w;
  const std::int32_t* offsets;
  T* y;  // (R, outer)
  std::int64_t n;
  std::int64_t k;
  int groups;
  bool backward;
};

template <class T, class Groups>
__global__ void grouped_rows_kernel(GroupedRows<T, Groups> p) {
  const GroupTile tile = group_tile(p.offsets, p.groups, blockIdx.x);
  if (tile.group < 0) return;
  const std::int64_t inner = p.backward ? p.n : p.k, outer = p.backward ? p.k : p.n;
  const auto weights = p.w.factor(tile.group, p.n, p.k, p.backward);
  const PlainFactor<T> rows{p.x + tile.first * inner, inner, 1, tile.rows};
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.y) * plain_tile;
  float sum[plain_columns_of_thread] = {};
  add_tile_products(weights, first_column, rows, inner, sum);
  const std::int64_t column = first_column + static_cast<int>(threadIdx.x) % plain_tile;
  const int row = static_cast<int>(threadIdx.x) / plain_tile * plain_columns_of_thread;
  for (int j = 0; j < plain_columns_of_thread; ++j) {
    if (column >= outer || row + j >= tile.rows) return;
    p.y[(tile.first + row + j) * outer + column] = from_float<T>(sum[j]);
  }
}

/// dw += dy^T x over the rows of each group.
template <class T>
struct GroupedWeights {
  const T* dy;  // (R, N)
  const T* x;   // (R, K)
  const std::int32_t* offsets;
  float* dw;  // (G N, K)
  std::int64_t n;
  std::int64_t k;
};

template <class T>
__global__ void grouped_weights_kernel(GroupedWeights<T> p) {
  const std::int64_t group = blockIdx.z;
  const std::int64_t first = p.offsets[group], rows = p.offsets[group + 1] - first;
  const std::int64_t first_n = static_cast<std::int64_t>(blockIdx.y) * plain_tile;
  const std::int64_t first_k = static_cast<std::int64_t>(blockIdx.x) * plain_tile;
  const PlainFactor<T> x{p.x + first * p.k, 1, p.k, p.k};
  const PlainFactor<T> dy{p.dy + first * p.n + first_n, 1, p.n, p.n - first_n};
  float sum[plain_columns_of_thread] = {};
  add_tile_products(x, first_k, dy, rows, sum);
  const std::int64_t column = first_k + static_cast<int>(threadIdx.x) % plain_tile;
  const std::int64_t row = first_n + static_cast<int>(threadIdx.x) / plain_tile * plain_columns_of_thread;
  for (int j = 0; j < plain_columns_of_thread; ++j) {
    if (column >= p.k || row + j >= p.n) return;
    p.dw[(group * p.n + row + j) * p.k + column] += sum[j];
  }
}

}  // namespace maestro::cuda
