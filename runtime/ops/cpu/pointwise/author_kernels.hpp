// SPDX-License-Identifier: Apache-2.0
// Kernels of the operators for section authors (author_operators.hpp). Rows have `columns` elements.
#pragma once

#include "runtime/ops/cpu/kernel_choice.hpp"

namespace maestro::cpu {

struct CosineGradient {
  const float* dy;
  In a;
  In b;
  const float* y;
  const float* lengths;
  Out da;  ///< null: not wanted
  Out db;  ///< null: not wanted
  std::int64_t rows;
  std::int64_t columns;
  float epsilon;
};

struct AuthorKernels {
  void (*scale)(In x, float factor, Out y, std::int64_t count);
  void (*multiply)(In a, In b, Out out, std::int64_t count);
  /// Multiplies each row of a by an element of b.
  void (*multiply_rows)(In a, In b, Out out, std::int64_t rows, std::int64_t columns);
  /// Multiplies all rows in a by the row in b.
  void (*multiply_columns)(In a, In b, Out out, std::int64_t rows, std::int64_t columns);
  void (*sigmoid)(In x, Out y, std::int64_t count);
  void (*sigmoid_backward)(In dy, In y, Out dx, std::int64_t count);
  void (*tanh)(In x, Out y, std::int64_t count);
  void (*tanh_backward)(In dy, In y, Out dx, std::int64_t count);
  void (*softmax)(In x, float* y, std::int64_t rows, std::int64_t columns, bool log);
  void (*softmax_backward)(In dy, In y, Out dx, std::int64_t rows, std::int64_t columns);
  void (*log_softmax_backward)(In dy, In y, Out dx, std::int64_t rows, std::int64_t columns);
  void (*row_dot)(In a, In b, float* y, std::int64_t rows, std::int64_t columns);
  /// Also writes |a| and |b| by row to lengths (rows, 2), at least epsilon.
  void (*cosine)(In a, In b, float* y, float* lengths, std::int64_t rows, std::int64_t columns, float epsilon);
  void (*cosine_backward)(const CosineGradient& call);
};
MAESTRO_KERNELS(AuthorKernels, author_kernels)

}  // namespace maestro::cpu
