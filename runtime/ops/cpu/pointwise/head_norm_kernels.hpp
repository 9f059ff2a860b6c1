// SPDX-License-Identifier: Apache-2.0
// RMS norms over groups of columns: the query and key heads in qkv, or all of q and all of k (operators.hpp, HeadNorm).
// Every row is independent, statistics are f32.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

/// Adjacent groups with `size` columns each, and the weights that they share.
struct NormGroups {
  std::int64_t first;  ///< the first group's first column
  std::int64_t count;
  std::int64_t size;
  std::int64_t first_sum;  ///< number of the first group's sum, among a row's sums
  const float* weight;     ///< (size)
  float* dweight;          ///< (size), accumulated; backward only; null: frozen
};

/// Normalises qkv (rows, columns); the columns from `normed` on are copied.
struct HeadNormCall {
  In x;
  Out y;  ///< null: only sums are computed
  NormGroups groups[2];
  float* sums;  ///< (rows, sums per row)
  bool sums_known;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t normed;
  std::int64_t ranks;
  float epsilon;
  float offset;
};

struct HeadNormBackwardCall {
  HeadNormCall norm;  ///< y is unused
  In dy;
  Out dx;       ///< null: only dots are computed
  float* dots;  ///< (rows, sums per row)
  bool dots_known;
};

struct HeadNormKernels {
  void (*forward)(const HeadNormCall& call);
  void (*backward)(const HeadNormBackwardCall& call);
};
MAESTRO_KERNELS(HeadNormKernels, head_norm_kernels)

}  // namespace maestro::cpu
