// SPDX-License-Identifier: Apache-2.0
// Pointwise kernels on `count` elements. Outputs may be inputs of the same storage type.
#pragma once

#include "runtime/core/gelu_kind.hpp"
#include "runtime/core/glu_gate.hpp"
#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

struct PointwiseKernels {
  void (*cast)(In from, Out to, std::int64_t count);
  void (*add)(In a, In b, Out out, std::int64_t count);
  /// Computes sum += scale x.
  void (*add_scaled)(const float* x, float scale, float* sum, std::int64_t count);
  void (*softcap)(Out x, std::int64_t count, float cap);
  /// Computes d *= 1 - (y / cap)^2.
  void (*softcap_backward)(const float* y, float cap, float* d, std::int64_t count);
  void (*gelu)(GeluKind kind, In x, Out y, std::int64_t count);
  void (*gelu_backward)(GeluKind kind, In dy, In x, Out dx, std::int64_t count);
  /// Computes y (rows, features) from x (rows, 2 features), whose gates lie as GluGate states.
  void (*glu)(const GluGate& gate, In x, Out y, std::int64_t rows, std::int64_t features);
  void (*glu_backward)(const GluGate& gate, In dy, In x, Out dx, std::int64_t rows, std::int64_t features);
};
MAESTRO_KERNELS(PointwiseKernels, pointwise_kernels)

}  // namespace maestro::cpu
