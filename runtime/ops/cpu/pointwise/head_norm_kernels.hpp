// SPDX-License-Identifier: Apache-2.0
// RMS norms of groups of columns: the query and key heads of qkv, or all of q and all of k (operators.hpp, HeadNorm).
// Every row is independent, statistics are f32.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

/// Groups of `size` columns each that lie side by side, with the weights that they share.
struct NormGroups {
  std::int64_t first;  ///< column of the first group
  std::int64_t count;
  std::int64_t size;
  std::int64_t first_sum;  ///< of the first group, among the sums of a row
  const float* weight;     ///< (size)
  float* dweight;          ///< (size), accumulated; backward only; null: frozen
};

/// Over qkv of (rows, columns); the columns behind `normed` are copied.
struct HeadNormCall {
  In x;
  Out y;  ///< null: only sums are computed
  NormGroups groups[2];
  float* sums;  ///< (rows, sums of a row)
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
  float* dots;  ///< (rows, sums of a row)
  bool dots_known;
};

struct HeadNormKernels {
  void (*forward)(const HeadNormCall& call);
  void (*backward)(const HeadNormBackwardCall& call);
};
MAESTRO_KERNELS(HeadNormKernels, head_norm_kernels)

}  // namespace maestro::cpu
