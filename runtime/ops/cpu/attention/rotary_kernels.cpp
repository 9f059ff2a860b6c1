// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/attention/rotary_kernels.hpp"

#include <vector>

#include "runtime/ops/cpu/storage.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

template <class T>
void rotate_head(const RotaryCall& call, const float* cosines, const float* sines, T* head) {
  T* first = head;
  T* second = head + call.half;
  const float direction = call.direction;
  for_vectors(call.half, [=](std::int64_t i, auto part) {
    const RotaryPair pair{part.load(first + i), part.load(second + i)};
    const RotaryPair rotated = pair.rotated(part.load(cosines + i), part.load(sines + i) * direction);
    part.store(first + i, rotated.first);
    part.store(second + i, rotated.second);
  });
}

/// Writes a row's cosines and sines, of n pairs each, to `angles`.
void collect(const RotaryCall& call, const std::int32_t* positions, std::vector<float>& angles) {
  for (std::int64_t i = 0; i < call.half; ++i) {
    const std::int64_t entry = positions[call.axis[i]] * call.half + i;
    angles[static_cast<std::size_t>(i)] = call.cosines[entry];
    angles[static_cast<std::size_t>(call.half + i)] = call.sines[entry];
  }
}

void rotate(const RotaryCall& call) {
  std::vector<float> angles(static_cast<std::size_t>(call.axis == nullptr ? 0 : 2 * call.half));
  typed(call.qkv, [&](auto* qkv) {
    for (std::int64_t row = 0; row < call.rows; ++row) {
      const std::int32_t* positions = call.positions + row * call.axes;
      const float* cosines = call.cosines + *positions * call.half;
      const float* sines = call.sines + *positions * call.half;
      if (call.axis != nullptr) {
        collect(call, positions, angles);
        cosines = angles.data();
        sines = cosines + call.half;
      }
      for (std::int64_t head = 0; head < call.heads; ++head) {
        rotate_head(call, cosines, sines, qkv + row * call.stride + head * call.head_size);
      }
    }
  });
}

}  // namespace

const RotaryKernels rotary_kernels = {rotate};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
