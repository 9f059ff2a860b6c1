// SPDX-License-Identifier: Apache-2.0
// Rows for heads: context ranks, each with its rows of all heads, exchange them so that each has all rows of its heads
// (DeepSpeed Ulysses, Jacobs et al. 2023), and back.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/collective/communicator.hpp"

namespace maestro {

/// Neighbouring heads of a kind (query, key, value, gate) that belong to a single rank, `columns` wide. The first
/// rank's heads begin at `part_column` in a row of all heads; each rank's at `own_column` in a row of only its heads.
/// If `sharers` is above 1, as many neighbouring ranks have the same heads; such blocks cannot go back to rows.
struct HeadBlock {
  std::int64_t part_column = 0;
  std::int64_t own_column = 0;
  std::int64_t columns = 0;
  std::int64_t sharers = 1;
};

/// Refers to the group. All ranks of it call the same functions in the same order.
class HeadExchange {
 public:
  HeadExchange(std::int64_t rows, Communicator& context) : context_(&context), rows_(rows) {}
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  /// Exchanges part (M_c, all heads) -> `whole` (M, the rank's heads).
  void to_heads(const Tensor& part, const Tensor& whole, const std::vector<HeadBlock>& heads) const;
  void to_rows(const Tensor& whole, const Tensor& part, const std::vector<HeadBlock>& heads) const;

 private:
  [[nodiscard]] std::vector<BlockTransfer> blocks_of_parts(const std::vector<HeadBlock>& heads) const;
  [[nodiscard]] std::vector<BlockTransfer> blocks_of_heads(const std::vector<HeadBlock>& heads) const;

  Communicator* context_;
  std::int64_t rows_;  // M
};

}  // namespace maestro
