// SPDX-License-Identifier: Apache-2.0
// A table of hashed n-grams that is cut over the ranks of a tensor group. Each rank looks up what it holds for all rows
// of a micro-batch; the group then exchanges the results, so that each rank has the rows of its tokens.
//
//   row     consecutive rows; a rank adds zeros for rows that it does not hold, and the group's sums are scattered
//   table   all rows of some hashes; columns of the result are exchanged for rows
//   column  some columns of every row; columns of the result are exchanged for rows
//
// TZ-1 (same gradients): each rank adds up the gradients of its lookups in the order of rows, as a single rank does.
//       `row` and `table` therefore give a row the same bits as a single rank. With `column` the group adds up the
//       squares of a row's columns (AdamWOptimizer::step), which may round differently.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ops/head_exchange.hpp"
#include "sections/memory/ngram_ids.hpp"
#include "sections/section.hpp"

namespace maestro {

enum class TableSharding : std::uint8_t { row, table, column };
inline constexpr std::array<std::string_view, 3> table_sharding_names{"row", "table", "column"};

/// Not thread-safe; used on the section's device thread.
class TableCut {
 public:
  /// Throws JobError, with `section` and the key, if the ranks cannot divide the table.
  TableCut(TableSharding sharding, const NGramIds& ids, const ParallelContext& parallel, const std::string& section);

  /// Returns this rank's part of the table; all of it on a single rank.
  [[nodiscard]] const ParameterSlice& slice() const { return slice_; }
  /// Returns the rows of the part that this rank reads, (M, held hashes), for row numbers (M, hashes) of the table; -1:
  /// another rank holds the row.
  [[nodiscard]] std::vector<std::int32_t> own_rows(std::span<const std::int32_t> rows) const;
  /// Returns this rank's rows of the result for `found` (M, held columns). A collective.
  [[nodiscard]] Var exchanged(Tape& tape, const Var& found) const;

 private:
  TableSharding sharding_;
  Communicator* group_;
  std::int64_t hashes_;
  RowRange own_hashes_;
  std::vector<HeadBlock> blocks_;  // columns of the result that each rank has
  ParameterSlice slice_;
};

}  // namespace maestro
