// SPDX-License-Identifier: Apache-2.0
// Pointwise kernels on `count` elements. Outputs may be inputs of the same storage type.
#pragma once

#include "runtime/core/gelu_kind.hpp"
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
  /// Computes y (rows, features) from x (rows, 2 features) = [gate | up].
  void (*swiglu)(In x, Out y, std::int64_t rows, std::int64_t features);
  void (*swiglu_backward)(In dy, In x, Out dx, std::int64_t rows, std::int64_t features);
  void (*geglu)(In x, Out y, std::int64_t rows, std::int64_t features);
  void (*geglu_backward)(In dy, In x, Out dx, std::int64_t rows, std::int64_t features);
};
MAESTRO_KERNELS(PointwiseKernels, pointwise_kernels)

}  // namespace maestro::cpu
