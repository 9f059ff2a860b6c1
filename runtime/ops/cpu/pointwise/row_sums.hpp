// SPDX-License-Identifier: Apache-2.0
// Sums over a row's elements. For kernel sources only.
#pragma once

#include "runtime/ops/cpu/vector_math.hpp"

namespace maestro::cpu::MAESTRO_ISA_NAMESPACE {

/// Returns the sum of term(i, part) over a row, in four running sums so that additions overlap; elements past the end
/// must add zero.
template <class Term>
MAESTRO_INLINE float sum_row(std::int64_t columns, Term term) {
  Vec sum[4] = {};
  std::int64_t i = 0;
  for (; i + 4 * vector_width <= columns; i += 4 * vector_width) {
    for (int v = 0; v < 4; ++v) sum[v] += term(i + v * vector_width, Whole{});
  }
  for (; i + vector_width <= columns; i += vector_width) sum[0] += term(i, Whole{});
  if (i < columns) sum[1] += term(i, Part{columns - i});
  return reduce_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

}  // namespace maestro::cpu::MAESTRO_ISA_NAMESPACE
