// SPDX-License-Identifier: Apache-2.0
// Rows for heads: context ranks, each with its rows of all heads, exchange them so that each has all rows of its heads
// (DeepSpeed Ulysses, Jacobs et al. 2023), and back. Ranks with the same heads may divide the queries, and then have
// only their part's rows of them (as in Llama 3's context parallelism, Dubey et al. 2024, section 3.3.2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/collective/communicator.hpp"
#include "runtime/core/range.hpp"
#include "runtime/ops/query_part.hpp"

namespace maestro {

/// Neighbouring heads of a kind (query, key, value, gate) that belong to a single rank, `columns` wide. The first
/// rank's heads begin at `part_column` in a row of all heads, each next rank's `distance` columns later (0: `columns`);
/// each rank's at `own_column` in a row of only its heads.
/// If `sharers` is above 1, as many neighbouring ranks have the same heads; such blocks cannot go back to rows, unless
/// they are by query: then each rank has only the rows of its query part.
struct HeadBlock {
  std::int64_t part_column = 0;
  std::int64_t own_column = 0;
  std::int64_t columns = 0;
  std::int64_t sharers = 1;
  bool by_query = false;
  std::int64_t distance = 0;
};

/// Packed sequences whose queries are divided over neighbouring ranks: rank r has part r % parts.
struct DividedQueries {
  std::span<const std::int32_t> offsets{};  ///< SequenceLayout::offsets
  std::int64_t parts = 1;
};

/// Returns the rows in `among` that are queries of a part, as ranges in order that do not touch.
[[nodiscard]] std::vector<RowRange> query_rows(std::span<const std::int32_t> offsets, const QueryPart& part,
                                               const RowRange& among);

/// Refers to the group and the offsets. All ranks of it call the same functions in the same order.
class HeadExchange {
 public:
  HeadExchange(std::int64_t rows, Communicator& context, DividedQueries queries = {})
      : context_(&context), rows_(rows), queries_(queries) {}
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  /// Exchanges part (M_c, all heads) -> `whole` (M, the rank's heads).
  void to_heads(const Tensor& part, const Tensor& whole, const std::vector<HeadBlock>& heads) const;
  void to_rows(const Tensor& whole, const Tensor& part, const std::vector<HeadBlock>& heads) const;

 private:
  [[nodiscard]] std::vector<BlockTransfer> blocks_of_parts(const std::vector<HeadBlock>& heads) const;
  [[nodiscard]] std::vector<BlockTransfer> blocks_of_heads(const std::vector<HeadBlock>& heads) const;
  [[nodiscard]] std::vector<RowRange> common_rows(const HeadBlock& block, std::int64_t home, std::int64_t rank) const;

  Communicator* context_;
  std::int64_t rows_;  // M
  DividedQueries queries_;
};

}  // namespace maestro
