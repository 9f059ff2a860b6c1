// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm over rows of `columns` elements; every row is independent, statistics are f32.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

struct NormCall {
  In x;                 ///< (rows, columns)
  Out y;                ///< (rows, columns)
  const float* weight;  ///< (columns)
  const float* bias;    ///< (columns); layer norm only
  float* mean;          ///< (rows); layer norm only
  float* rstd;          ///< (rows)
  std::int64_t rows;
  std::int64_t columns;
  float epsilon;
  float offset;  ///< added to every weight; RMS norm only
};

struct NormBackwardCall {
  In dy;
  In x;
  const float* weight;
  const float* mean;  ///< layer norm only
  const float* rstd;
  Out dx;
  bool accumulate;
  float* dweight;  ///< (columns), accumulated; null: frozen
  float* dbias;    ///< (columns), accumulated; null: frozen, or RMS norm
  std::int64_t rows;
  std::int64_t columns;
  float offset;
};

struct NormKernels {
  void (*layer_norm)(const NormCall& call);
  void (*layer_norm_backward)(const NormBackwardCall& call);
  void (*rms_norm)(const NormCall& call);
  void (*rms_norm_backward)(const NormBackwardCall& call);
};
MAESTRO_KERNELS(NormKernels, norm_kernels)

}  // namespace maestro::cpu
