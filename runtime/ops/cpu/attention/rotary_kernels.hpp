// SPDX-License-Identifier: Apache-2.0
// Rotation of the first columns of query and key heads.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

struct RotaryCall {
  Out qkv;  ///< (rows, stride), rotated in place
  std::int64_t rows;
  std::int64_t stride;            ///< columns of a row of qkv
  std::int64_t heads;             ///< heads to rotate, from column 0 on
  std::int64_t head_size;         ///< D
  std::int64_t half;              ///< n: the first 2 n columns of a head are rotated
  const std::int32_t* positions;  ///< (rows, axes)
  std::int64_t axes;
  const std::uint8_t* axis;  ///< (n): axis of each pair; null: the first
  const float* cosines;      ///< (positions, n)
  const float* sines;        ///< (positions, n)
  float direction;           ///< +1, or -1 for the transposed rotation
};

struct RotaryKernels {
  void (*rotate)(const RotaryCall& call);
};
MAESTRO_KERNELS(RotaryKernels, rotary_kernels)

}  // namespace maestro::cpu
