// SPDX-License-Identifier: Apache-2.0
// Attention in parts of its queries, for kernel tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "runtime/ops/operators.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro::testing {

/// The value of what a kernel may write beforehand; bf16 holds it exactly.
inline constexpr double unwritten = 1048576;

/// Returns whether each row is a query of the part.
inline std::vector<bool> queries_of(const QueryPart& part, std::span<const std::int32_t> offsets) {
  std::vector<bool> own(static_cast<std::size_t>(offsets.back()));
  for (std::size_t sequence = 0; sequence + 1 < offsets.size(); ++sequence) {
    const std::int64_t begin = offsets[sequence], length = offsets[sequence + 1] - begin;
    const QueryTiles tiles(part, static_cast<std::int64_t>(sequence), length);
    for (std::int64_t row = 0; row < length; ++row) own[static_cast<std::size_t>(begin + row)] = tiles.has(row);
  }
  return own;
}

/// Returns the answer (out, lse and dqkv) that the parts of the queries give together: compute(problem, part) each, of
/// problems with NaN in all that the part must not read. Expects that it leaves `unwritten` in rows of other parts.
template <class Answer, class Problem, class Compute>
Answer answer_of_parts(const Problem& problem, std::span<const std::int32_t> offsets, std::int64_t parts,
                       const Compute& compute) {
  const AttentionShape& shape = problem.shape;
  const auto queries = static_cast<std::size_t>(shape.out_columns());
  const auto columns = static_cast<std::size_t>(shape.qkv_columns());
  const auto heads = static_cast<std::size_t>(shape.heads);
  const auto rows = static_cast<std::size_t>(offsets.back());
  Answer sum{Values(rows * queries), Values(rows * heads), Values(rows * columns)};
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::vector<bool> own = queries_of({part, parts}, offsets);
    Problem hidden = problem;
    for (std::size_t row = 0; row < rows; ++row) {
      if (own[row]) continue;
      constexpr double nan = std::numeric_limits<double>::quiet_NaN();
      std::fill_n(hidden.qkv.begin() + static_cast<std::ptrdiff_t>(row * columns), queries, nan);
      std::fill_n(hidden.dout.begin() + static_cast<std::ptrdiff_t>(row * queries), queries, nan);
    }
    const Answer got = compute(hidden, QueryPart{part, parts});
    const auto take = [&](const Values& from, Values& to, std::size_t width, std::size_t by_query) {
      for (std::size_t at = 0; at < from.size(); ++at) {
        const bool written = at % width >= by_query || own[at / width];
        if (written) to[at] += from[at];
        if (!written && from[at] != unwritten) ADD_FAILURE() << "row " << at / width << " is written by part " << part;
      }
    };
    take(got.out, sum.out, queries, queries);
    take(got.lse, sum.lse, heads, heads);
    take(got.dqkv, sum.dqkv, columns, queries);
  }
  return sum;
}

}  // namespace maestro::testing
