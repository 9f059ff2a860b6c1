// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/expert_rows.hpp"

#include <algorithm>
#include <numeric>

#include "runtime/core/range.hpp"

namespace maestro {

namespace {

std::span<const std::int32_t> integers_of(const Block& block) {
  return block.tensor().span<std::int32_t>();
}

std::vector<BlockTransfer> of_columns(std::vector<BlockTransfer> transfers, std::int64_t columns) {
  for (BlockTransfer& transfer : transfers) transfer.block.columns = columns;
  return transfers;
}

}  // namespace

ExpertRows::ExpertRows(Tape& tape, const Routes& routes, Communicator* group)
    : tape_(&tape),
      routes_(routes),
      group_(group),
      count_(routes.row_tokens.tensor().elements()),
      offsets_(routes.offsets) {
  if (group == nullptr) return;
  const std::int64_t experts = routes.offsets.tensor().elements() - 1;
  plan(counts_of_all(experts), experts);
  weights_ = to_owners(routes.weights.value());
}

std::vector<std::int64_t> ExpertRows::counts_of_all(std::int64_t experts) const {
  const std::int64_t ranks = group_->size();
  const bool known = tape_->ops().memory().holds_values();
  std::vector<std::int32_t> own(static_cast<std::size_t>(experts));
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    const auto at = static_cast<std::size_t>(expert);
    own[at] = known ? integers_of(routes_.offsets)[at + 1] - integers_of(routes_.offsets)[at]
                    : static_cast<std::int32_t>(row_part(count_, experts, expert).count);
  }
  const Block all = tape_->scratch({ranks, experts}, DType::i32);
  group_->all_gather_rows(tape_->indices(own).tensor().reshaped({1, experts}), all.tensor());
  std::vector<std::int64_t> counts;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::span<const std::int32_t> of_rank = known ? integers_of(all).subspan(counts.size(), own.size()) : own;
    counts.insert(counts.end(), of_rank.begin(), of_rank.end());
  }
  return counts;
}

void ExpertRows::plan(const std::vector<std::int64_t>& counts, std::int64_t experts) {
  const std::int64_t ranks = group_->size();
  const RowRange mine = row_part(experts, ranks, group_->rank());
  const auto count = [&](std::int64_t rank, std::int64_t expert) {
    return counts[static_cast<std::size_t>(rank * experts + expert)];
  };
  std::int64_t row = 0;
  for (std::int64_t owner = 0; owner < ranks; ++owner) {
    const RowRange of_owner = row_part(experts, ranks, owner);
    for (std::int64_t expert = of_owner.first; expert < of_owner.end(); ++expert) {
      own_.push_back({owner, {row, count(group_->rank(), expert), 0, 0}});
      row += own_.back().block.rows;
    }
  }
  std::vector<std::int32_t> offsets{0};
  row = 0;
  for (std::int64_t expert = mine.first; expert < mine.end(); ++expert) {
    for (std::int64_t source = 0; source < ranks; ++source) {
      received_.push_back({source, {row, count(source, expert), 0, 0}});
      row += received_.back().block.rows;
    }
    offsets.push_back(static_cast<std::int32_t>(row));
  }
  count_ = row;
  offsets_ = tape_->indices(offsets);
}

Block ExpertRows::to_owners(const Tensor& own) const {
  const std::int64_t columns = own.columns();
  Block received = tape_->scratch({count_, columns}, own.dtype());
  group_->exchange(own, of_columns(own_, columns), received.tensor(), of_columns(received_, columns));
  return received;
}

Block ExpertRows::to_sources(const Tensor& received) const {
  const std::int64_t columns = received.columns();
  Block own = tape_->scratch({routes_.row_tokens.tensor().elements(), columns}, received.dtype());
  group_->exchange(received, of_columns(received_, columns), own.tensor(), of_columns(own_, columns));
  return own;
}

Block ExpertRows::rows_of(const Tensor& values) const {
  Block rows = tape_->scratch({routes_.row_tokens.tensor().elements(), values.columns()}, values.dtype());
  tape_->ops().run(IndexSelect{.from = values, .index = integers_of(routes_.row_tokens), .to = rows.tensor()});
  return group_ == nullptr ? rows : to_owners(rows.tensor());
}

void ExpertRows::combine(const Block& rows, const Tensor& to) const {
  const Block own = group_ == nullptr ? rows : to_sources(rows.tensor());
  tape_->ops().run(CombineRows{.rows = own.tensor(), .places = routes_.places.tensor(), .y = to});
}

void ExpertRows::add_weight_gradient(const Block& dweights) const {
  tape_->add_gradient(routes_.weights, group_ == nullptr ? dweights : to_sources(dweights.tensor()));
}

}  // namespace maestro
