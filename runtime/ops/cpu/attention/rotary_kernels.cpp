// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/attention/rotary_kernels.hpp"

#include "runtime/ops/cpu/storage.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {
namespace {

template <class T>
void rotate_head(const RotaryCall& call, std::int64_t table_row, T* head) {
  const float* cosines = call.cosines + table_row;
  const float* sines = call.sines + table_row;
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

void rotate(const RotaryCall& call) {
  typed(call.qkv, [&](auto* qkv) {
    for (std::int64_t row = 0; row < call.rows; ++row) {
      const std::int64_t table_row = call.positions[row] * call.half;
      for (std::int64_t head = 0; head < call.heads; ++head) {
        rotate_head(call, table_row, qkv + row * call.stride + head * call.head_size);
      }
    }
  });
}

}  // namespace

const RotaryKernels rotary_kernels = {rotate};

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
