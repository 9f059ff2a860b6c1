// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/losses/top_k_kernels.hpp"

#include "runtime/ops/cpu/vector_math.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

constexpr int vectors_at_once = 4;
constexpr std::int64_t step = vectors_at_once * vector_width;

/// Returns true when some of `step` values is not <= threshold.
MAESTRO_INLINE bool any_above(const float* values, Vec threshold) {
  IVec found{};
  for (int v = 0; v < vectors_at_once; ++v) found |= ~(load(values + v * vector_width) <= threshold);
  std::int32_t lanes[vector_width];
  __builtin_memcpy(lanes, &found, sizeof lanes);
  std::int32_t any = 0;
  for (const std::int32_t lane : lanes) any |= lane;
  return any != 0;
}

std::int64_t next_above(const float* values, std::int64_t from, std::int64_t count, float threshold) {
  std::int64_t i = from;
  const Vec limit = broadcast(threshold);
  while (i + step <= count && !any_above(values + i, limit)) i += step;
  while (i < count && values[i] <= threshold) ++i;
  return i;
}

}  // namespace

const TopKKernels top_k_kernels = {next_above};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
