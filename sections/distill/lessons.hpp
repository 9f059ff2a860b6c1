// SPDX-License-Identifier: Apache-2.0
// Assigns the rows of a micro-batch to teachers. Pure.
//
// LS-1 (each row once): every row of the part is in exactly one lesson; lessons and their rows are in row order.
// LS-2 (shares of one): the shares of a lesson's teachers are their weights over the sum of these weights.
// LS-3 (answers): row i of the targets of a sample is paired with row i that a teacher of answers sends for it, so the
//       two may have any number of other rows between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/range.hpp"

namespace maestro {

/// Rows that learn from the same teachers, and were all made or all read.
struct Lesson {
  struct Teacher {
    std::size_t number = 0;
    double share = 1;            ///< share of the divergence
    std::vector<RowRange> rows;  ///< rows of the teacher's tensors, for `Lesson::rows`; neighbours are joined
  };
  std::vector<RowRange> rows;     ///< rows of the part, counted from its first; neighbours are joined
  std::vector<Teacher> teachers;  ///< teachers by number
  bool made = false;              ///< rows of samples that a generator made
};

/// A teacher, and the samples of the micro-batch that it sends rows for.
struct TaughtSamples {
  double weight = 1;
  std::vector<bool> taken;  ///< whether it sends rows, by sample
  bool answers = false;     ///< sends only the rows that have a target
};

/// Returns the rows of ranges, in their order.
[[nodiscard]] std::vector<std::int64_t> row_numbers(const std::vector<RowRange>& ranges);

/// Returns the lessons of the rows `part` of a micro-batch; sample s has the rows offsets[s] to offsets[s + 1], and
/// `made` states by sample whether a generator made it; empty: none. A part without rows has a lesson without teachers.
[[nodiscard]] std::vector<Lesson> lessons_of(std::span<const std::int32_t> offsets, RowRange part,
                                             const std::vector<TaughtSamples>& teachers,
                                             const std::vector<bool>& made = {});
/// Returns the lessons of all rows of a micro-batch, but only the rows whose target in `targets` is not
/// `ignored_target`.
[[nodiscard]] std::vector<Lesson> answer_lessons(std::span<const std::int32_t> offsets,
                                                 const std::vector<TaughtSamples>& teachers,
                                                 std::span<const std::int32_t> targets);

}  // namespace maestro
