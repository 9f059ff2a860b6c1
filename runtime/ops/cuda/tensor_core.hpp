// SPDX-License-Identifier: Apache-2.0
// Products of small tiles by the tensor cores, with a double for the CPU. For kernel sources only.
#pragma once

#include "runtime/ops/cuda/cuda_language.hpp"

namespace maestro::cuda {

/// Computes d = a b + c for a warp: a (16, 16) bf16 row-major, b (16, 8) bf16, c and d (16, 8) f32. All lanes call it.
/// With lane = 4 g + t (g = 0..7, t = 0..3), a register holds two bf16, the lower column or row in its lower half:
///   a[0] = a(g, 2t..2t+1)   a[1] = a(g + 8, 2t..2t+1)   a[2] = a(g, 2t+8..2t+9)   a[3] = a(g + 8, 2t+8..2t+9)
///   b[0] = b(2t..2t+1, g)   b[1] = b(2t+8..2t+9, g)
///   c[0], c[1] = c(g, 2t..2t+1)   c[2], c[3] = c(g + 8, 2t..2t+1)   d as c
/// (PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type"). d may be c. Compute capability 8.0.
__device__ __forceinline__ void mma_bf16_16x8x16(float d[4], const std::uint32_t a[4], const std::uint32_t b[2],
                                                 const float c[4]) {
#if defined(MAESTRO_FAKE_CUDA)
  struct Fragments {
    std::uint32_t a[4];
    std::uint32_t b[2];
  };
  static_assert(sizeof(Fragments) <= fake_cuda::LaneValue::most_bytes);
  Fragments own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  fake_cuda::LaneValue value;
  std::memcpy(value.bytes.data(), &own, sizeof own);
  const fake_cuda::LaneValue* all = fake_cuda::warp_exchange(all_lanes, value);
  const auto lane = static_cast<int>(fake_cuda::lane_number());
  const auto half = [](std::uint32_t word, int upper) {
    return __uint_as_float(upper != 0 ? word & 0xffff0000U : word << 16);
  };
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + (i / 2) * 8;
    const int column = lane % 4 * 2 + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; ++k) {
      Fragments of_a;
      Fragments of_b;
      std::memcpy(&of_a, all[row % 8 * 4 + k % 8 / 2].bytes.data(), sizeof of_a);
      std::memcpy(&of_b, all[column * 4 + k % 8 / 2].bytes.data(), sizeof of_b);
      sum += half(of_a.a[row / 8 + k / 8 * 2], k % 2) * half(of_b.b[k / 8], k % 2);
    }
    d[i] = sum + c[i];
  }
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};\n"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#endif
}

}  // namespace maestro::cuda
