// SPDX-License-Identifier: Apache-2.0
// Turns the run-time storage type of kernel operands into a static type. For kernel sources only.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"
#include "runtime/ops/cpu/vector_math.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {

/// Calls body(const float* or const std::uint16_t*).
template <class Body>
MAESTRO_INLINE void typed(In in, Body body) {
  if (in.bf16) {
    body(static_cast<const std::uint16_t*>(in.data));
  } else {
    body(static_cast<const float*>(in.data));
  }
}
template <class Body>
MAESTRO_INLINE void typed(Out out, Body body) {
  if (out.bf16) {
    body(static_cast<std::uint16_t*>(out.data));
  } else {
    body(static_cast<float*>(out.data));
  }
}

[[nodiscard]] MAESTRO_INLINE In at(In in, std::int64_t element) {
  return {static_cast<const char*>(in.data) + element * (in.bf16 ? 2 : 4), in.bf16};
}
[[nodiscard]] MAESTRO_INLINE Out at(Out out, std::int64_t element) {
  return {static_cast<char*>(out.data) + element * (out.bf16 ? 2 : 4), out.bf16};
}

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
