// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/head_exchange.hpp"

#include "runtime/collective/rank_part.hpp"

namespace maestro {

void HeadExchange::to_heads(const Tensor& part, const Tensor& whole, const std::vector<HeadBlock>& heads) const {
  context_->exchange(part, blocks_of_parts(heads), whole, blocks_of_heads(heads));
}

void HeadExchange::to_rows(const Tensor& whole, const Tensor& part, const std::vector<HeadBlock>& heads) const {
  context_->exchange(whole, blocks_of_heads(heads), part, blocks_of_parts(heads));
}

/// Returns the blocks in a tensor of this rank's rows: each peer's heads.
std::vector<BlockTransfer> HeadExchange::blocks_of_parts(const std::vector<HeadBlock>& heads) const {
  const std::int64_t rows = rank_part(rows_, *context_).count;
  std::vector<BlockTransfer> blocks;
  for (std::int64_t peer = 0; peer < context_->size(); ++peer) {
    for (const HeadBlock& head : heads) {
      blocks.push_back({peer, {0, rows, head.part_column + peer / head.sharers * head.columns, head.columns}});
    }
  }
  return blocks;
}

/// Returns the blocks in a tensor of this rank's heads: each peer's rows.
std::vector<BlockTransfer> HeadExchange::blocks_of_heads(const std::vector<HeadBlock>& heads) const {
  std::vector<BlockTransfer> blocks;
  for (std::int64_t peer = 0; peer < context_->size(); ++peer) {
    const RankPart rows = rank_part(rows_, context_->size(), peer);
    for (const HeadBlock& head : heads) {
      blocks.push_back({peer, {rows.first, rows.count, head.own_column, head.columns}});
    }
  }
  return blocks;
}

}  // namespace maestro
