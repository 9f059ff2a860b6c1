// SPDX-License-Identifier: Apache-2.0
// Products of a warp over tiles in shared memory, for the attention kernels: bf16 by tensor cores, f32 by
// multiply-add. A warp owns 16 rows; its accumulators have the layout of mma.m16n8k16 for both types: with
// lane = 4 g + t, acc[n][0], acc[n][1] are (row g, columns 8 n + 2t, + 1), acc[n][2], acc[n][3] the same of row g + 8.
#pragma once

#include "runtime/ops/cuda/cuda_language.hpp"
#include "runtime/ops/cuda/tensor_core.hpp"

/// Precedes a loop over registers, whose indices must be compile-time constants.
#if defined(MAESTRO_FAKE_CUDA)
#define MAESTRO_UNROLL
#else
#define MAESTRO_UNROLL _Pragma("unroll")
#endif

namespace maestro::cuda {

inline constexpr int warp_rows = 16;   ///< rows of an accumulator
inline constexpr int mma_columns = 8;  ///< columns of an accumulator fragment
inline constexpr int mma_inner = 16;
inline constexpr int quad_lanes = 4;  ///< lanes that share a row

/// Returns the row of this lane's accumulators for `half`, 0 or 1.
__device__ __forceinline__ int row_of_lane(int half) {
  return lane_index() / quad_lanes + half * (warp_rows / 2);
}
/// Returns the first of this lane's two columns in fragment `n`.
__device__ __forceinline__ int column_of_lane(int n) {
  return n * mma_columns + lane_index() % quad_lanes * 2;
}

/// Loads four 8 x 8 bf16 matrices from shared memory; lane i passes the address of row i % 8 of matrix i / 8, 16-byte
/// aligned. r[i] holds elements (g, 2t) and (g, 2t + 1) of matrix i, or, transposed, (2t, g) and (2t + 1, g); the first
/// in the lower half (PTX ISA, ldmatrix).
template <bool Transposed>
__device__ __forceinline__ void load_matrices(std::uint32_t r[4], const bfloat16* row) {
#if defined(MAESTRO_FAKE_CUDA)
  fake_cuda::LaneValue value;
  std::memcpy(value.bytes.data(), &row, sizeof row);
  const fake_cuda::LaneValue* all = fake_cuda::warp_exchange(all_lanes, value);
  const int g = lane_index() / quad_lanes;
  const int t = lane_index() % quad_lanes;
  for (int i = 0; i < 4; ++i) {
    std::uint32_t halves[2];
    for (int j = 0; j < 2; ++j) {
      const bfloat16* from = nullptr;
      std::memcpy(&from, all[i * 8 + (Transposed ? 2 * t + j : g)].bytes.data(), sizeof from);
      if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) fake_cuda::kernel_fault("unaligned ldmatrix");
      halves[j] = from[Transposed ? g : 2 * t + j].bits;
    }
    r[i] = halves[0] | halves[1] << 16;
  }
#else
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (Transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
#endif
}

/// Packs two numbers as bf16 into a register, `low` in the lower half.
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  return static_cast<std::uint32_t>(from_float<bfloat16>(low).bits) |
         static_cast<std::uint32_t>(from_float<bfloat16>(high).bits) << 16;
}

/// Computes acc (16, 8 N) += a (16, inner) b (8 N, inner)^T; a and b are row-major in shared memory with `stride`
/// elements per row, `inner` is a multiple of 16. N is even.
template <int N>
__device__ __forceinline__ void multiply_rows(float (&acc)[N][4], const bfloat16* a, const bfloat16* b, int stride,
                                              int inner) {
  const int lane = lane_index();
  const bfloat16* a_row = a + (lane % warp_rows) * stride + lane / warp_rows * 8;
  const bfloat16* b_row = b + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8;
  for (int k = 0; k < inner; k += mma_inner) {
    std::uint32_t of_a[4];
    load_matrices<false>(of_a, a_row + k);
    MAESTRO_UNROLL
    for (int n = 0; n < N; n += 2) {
      std::uint32_t of_b[4];
      load_matrices<false>(of_b, b_row + n * mma_columns * stride + k);
      mma_bf16_16x8x16(acc[n], of_a, of_b, acc[n]);
      mma_bf16_16x8x16(acc[n + 1], of_a, of_b + 2, acc[n + 1]);
    }
  }
}
template <int N>
__device__ __forceinline__ void multiply_rows(float (&acc)[N][4], const float* a, const float* b, int stride,
                                              int inner) {
  const float* upper = a + row_of_lane(0) * stride;
  const float* lower = a + row_of_lane(1) * stride;
  for (int k = 0; k < inner; ++k) {
    MAESTRO_UNROLL
    for (int n = 0; n < N; ++n) {
      const float left = b[column_of_lane(n) * stride + k];
      const float right = b[(column_of_lane(n) + 1) * stride + k];
      acc[n][0] += upper[k] * left;
      acc[n][1] += upper[k] * right;
      acc[n][2] += lower[k] * left;
      acc[n][3] += lower[k] * right;
    }
  }
}

/// Computes acc (16, columns) += strip (16, 8 P) b (8 P, columns). `strip` is an accumulator of this warp, rounded to
/// the type of b; b is row-major in shared memory with `stride` elements per row. columns <= 8 N is a multiple of 16
/// and equal on all lanes. `own`: 16 x strip_stride<P> elements of this warp's shared memory, for f32 only.
template <int P>
inline constexpr int strip_stride = P* mma_columns + 1;

template <int P, int N>
__device__ __forceinline__ void multiply_strip(float (&acc)[N][4], const float (&strip)[P][4], const bfloat16* b,
                                               int stride, int columns, bfloat16* /*own*/) {
  const int lane = lane_index();
  const bfloat16* b_row = b + (lane % warp_rows) * stride + lane / warp_rows * 8;
  MAESTRO_UNROLL
  for (int p = 0; p < P; p += 2) {
    const std::uint32_t of_a[4] = {pack_bf16(strip[p][0], strip[p][1]), pack_bf16(strip[p][2], strip[p][3]),
                                   pack_bf16(strip[p + 1][0], strip[p + 1][1]),
                                   pack_bf16(strip[p + 1][2], strip[p + 1][3])};
    MAESTRO_UNROLL
    for (int n = 0; n < N; n += 2) {
      if (n * mma_columns < columns) {
        std::uint32_t of_b[4];
        load_matrices<true>(of_b, b_row + p * mma_columns * stride + n * mma_columns);
        mma_bf16_16x8x16(acc[n], of_a, of_b, acc[n]);
        mma_bf16_16x8x16(acc[n + 1], of_a, of_b + 2, acc[n + 1]);
      }
    }
  }
}
template <int P, int N>
__device__ __forceinline__ void multiply_strip(float (&acc)[N][4], const float (&strip)[P][4], const float* b,
                                               int stride, int columns, float* own) {
  __syncwarp();  // the previous strip may still be read
  MAESTRO_UNROLL
  for (int p = 0; p < P; ++p) {
    for (int i = 0; i < 4; ++i) own[row_of_lane(i / 2) * strip_stride<P> + column_of_lane(p) + i % 2] = strip[p][i];
  }
  __syncwarp();
  const float* upper = own + row_of_lane(0) * strip_stride<P>;
  const float* lower = own + row_of_lane(1) * strip_stride<P>;
  for (int k = 0; k < P * mma_columns; ++k) {
    MAESTRO_UNROLL
    for (int n = 0; n < N; ++n) {
      if (n * mma_columns < columns) {
        const float left = b[k * stride + column_of_lane(n)];
        const float right = b[k * stride + column_of_lane(n) + 1];
        acc[n][0] += upper[k] * left;
        acc[n][1] += upper[k] * right;
        acc[n][2] += lower[k] * left;
        acc[n][3] += lower[k] * right;
      }
    }
  }
}

}  // namespace maestro::cuda
