// SPDX-License-Identifier: Apache-2.0
// Rotation of the halves of query and key heads.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

struct RotaryCall {
  Out qkv;  ///< (rows, stride), rotated in place
  std::int64_t rows;
  std::int64_t stride;            ///< columns of a row of qkv
  std::int64_t heads;             ///< heads to rotate, from column 0 on
  std::int64_t half;              ///< D / 2
  const std::int32_t* positions;  ///< (rows)
  const float* cosines;           ///< (positions, D / 2)
  const float* sines;             ///< (positions, D / 2)
  float direction;                ///< +1, or -1 to rotate back
};

struct RotaryKernels {
  void (*rotate)(const RotaryCall& call);
};
MAESTRO_KERNELS(RotaryKernels, rotary_kernels)

}  // namespace maestro::cpu
