// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/head_exchange.hpp"

#include <algorithm>

#include "runtime/collective/rank_part.hpp"

namespace maestro {

std::vector<RowRange> query_rows(std::span<const std::int32_t> offsets, const QueryPart& part, const RowRange& among) {
  std::vector<RowRange> found;
  for (std::size_t sequence = 0; sequence + 1 < offsets.size(); ++sequence) {
    const std::int64_t begin = offsets[sequence];
    const std::int64_t stop = std::min<std::int64_t>(offsets[sequence + 1], among.end());
    if (stop <= among.first) continue;
    const QueryTiles tiles(part, static_cast<std::int64_t>(sequence), offsets[sequence + 1] - begin);
    for (std::int64_t round = 0; begin + tiles.first_row(round) < stop; ++round) {
      const std::int64_t first = std::max(begin + tiles.first_row(round), among.first);
      const std::int64_t end = std::min(begin + tiles.first_row(round) + tiles.rows, stop);
      if (first >= end) continue;
      if (!found.empty() && found.back().end() == first) {
        found.back().count += end - first;
      } else {
        found.push_back({first, end - first});
      }
    }
  }
  return found;
}

void HeadExchange::to_heads(const Tensor& part, const Tensor& whole, const std::vector<HeadBlock>& heads) const {
  context_->exchange(part, blocks_of_parts(heads), whole, blocks_of_heads(heads));
}

void HeadExchange::to_rows(const Tensor& whole, const Tensor& part, const std::vector<HeadBlock>& heads) const {
  context_->exchange(whole, blocks_of_heads(heads), part, blocks_of_parts(heads));
}

/// Returns the blocks in a tensor of this rank's rows: each peer's heads.
std::vector<BlockTransfer> HeadExchange::blocks_of_parts(const std::vector<HeadBlock>& heads) const {
  const std::int64_t first = rank_part(rows_, *context_).first;
  std::vector<BlockTransfer> blocks;
  for (std::int64_t peer = 0; peer < context_->size(); ++peer) {
    for (const HeadBlock& head : heads) {
      const std::int64_t distance = head.distance > 0 ? head.distance : head.columns;
      const std::int64_t column = head.part_column + peer / head.sharers * distance;
      for (const RowRange& rows : common_rows(head, context_->rank(), peer)) {
        blocks.push_back({peer, {rows.first - first, rows.count, column, head.columns}});
      }
    }
  }
  return blocks;
}

/// Returns the blocks in a tensor of this rank's heads: each peer's rows.
std::vector<BlockTransfer> HeadExchange::blocks_of_heads(const std::vector<HeadBlock>& heads) const {
  std::vector<BlockTransfer> blocks;
  for (std::int64_t peer = 0; peer < context_->size(); ++peer) {
    for (const HeadBlock& head : heads) {
      for (const RowRange& rows : common_rows(head, peer, context_->rank())) {
        blocks.push_back({peer, {rows.first, rows.count, head.own_column, head.columns}});
      }
    }
  }
  return blocks;
}

/// Returns the rows of `home` that `rank` has in a block of its heads.
std::vector<RowRange> HeadExchange::common_rows(const HeadBlock& block, std::int64_t home, std::int64_t rank) const {
  const RankPart rows = rank_part(rows_, context_->size(), home);
  if (!block.by_query) return {rows};
  return query_rows(queries_.offsets, {rank % queries_.parts, queries_.parts}, rows);
}

}  // namespace maestro
