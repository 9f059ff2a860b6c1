// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/reshard.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

namespace maestro {

namespace {

constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();

std::int64_t rows_of(const ReshardRequest& request, std::span<const SampleRef> samples) {
  std::int64_t sum = 0;
  for (const SampleRef& sample : samples) sum += sample.rows(request.axis, request.sources);
  return sum;
}

/// Returns the part of row_part(rows, parts, ...) that has `row`: the last part that begins at or before it, so never
/// an empty part.
std::int64_t part_at(std::int64_t rows, std::int64_t parts, std::int64_t row) {
  return parts == 1 ? 0 : ((row + 1) * parts - 1) / rows;
}

/// A rank and the rows that it holds.
struct Holder {
  std::int64_t rank = 0;
  RowRange rows;
};

/// Returns the rank of `layout` that sends `row` of a micro-batch of `rows` rows to `receiver_rank` (RE-3). Under
/// Sharding::vocabulary the tensor degrees are equal, so that taking them in turn is RE-4.
Holder sender_of(const Layout& layout, Sharding sharding, std::int64_t rows, std::int64_t row,
                 std::int64_t receiver_rank) {
  if (sharding == Sharding::replicated) return {receiver_rank % layout.ranks(), {0, rows}};
  const std::int64_t context = part_at(rows, layout.context, row);
  const RowRange part = row_part(rows, layout.context, context);
  const std::int64_t first_rank = context * layout.tensor;
  if (sharding != Sharding::rank_rows) return {first_rank + receiver_rank % layout.tensor, part};
  const std::int64_t tensor = part_at(part.count, layout.tensor, row - part.first);
  const RowRange own = row_part(part.count, layout.tensor, tensor);
  return {first_rank + tensor, {part.first + own.first, own.count}};
}

/// First row of a sample among the rows of the senders.
struct SamplePlace {
  std::uint32_t sender = nowhere;
  std::int64_t row = 0;
};

/// Samples that are consecutive both in the receiving micro-batch and in a sending micro-batch.
struct Run {
  std::uint32_t sender = 0;
  std::int64_t source_row = 0;
  std::int64_t target_row = 0;
  std::int64_t rows = 0;
};

}  // namespace

class ReshardPlan::Maker {
 public:
  explicit Maker(const ReshardRequest& request) : request_(&request) {
    plan_.ranks_ = static_cast<std::size_t>(request.receiver.layout.ranks());
    plan_.ends_.reserve(request.receivers.size() * plan_.ranks_);
    find_samples();
  }

  ReshardPlan make() {
    for (std::size_t at = 0; at < request_->receivers.size(); ++at) {
      const std::int64_t rows = find_runs(request_->receivers[at]);
      const Layout layout = request_->receiver.of(at);
      for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
        add_pieces(layout.rows(request_->receiver.sharding, rows, rank), rank);
        plan_.ends_.push_back(plan_.pieces_.size());
      }
      plan_.ends_.resize((at + 1) * plan_.ranks_, plan_.pieces_.size());  // a narrower layout has fewer ranks
    }
    return std::move(plan_);
  }

 private:
  void find_samples() {
    for (std::uint32_t at = 0; at < request_->senders.size(); ++at) {
      std::int64_t row = 0;
      for (const SampleRef& sample : request_->senders[at]) {
        if (sample.index_in_step >= places_.size()) places_.resize(sample.index_in_step + std::size_t{1});
        places_[sample.index_in_step] = {at, row};
        row += sample.rows(request_->axis, request_->sources);
      }
      sender_rows_.push_back(row);
    }
  }

  /// Returns the rows of the micro-batch.
  std::int64_t find_runs(std::span<const SampleRef> receiver) {
    runs_.clear();
    std::int64_t row = 0;
    for (const SampleRef& sample : receiver) {
      const std::int64_t rows = sample.rows(request_->axis, request_->sources);
      if (rows == 0) continue;
      assert(sample.index_in_step < places_.size() && places_[sample.index_in_step].sender != nowhere);
      const SamplePlace source = places_[sample.index_in_step];
      const bool follows = !runs_.empty() && runs_.back().sender == source.sender &&
                           runs_.back().source_row + runs_.back().rows == source.row;
      if (follows) {
        runs_.back().rows += rows;
      } else {
        runs_.push_back({source.sender, source.row, row, rows});
      }
      row += rows;
    }
    return row;
  }

  /// Adds the pieces of a rank. RE-1: both ends hold consecutive rows of their micro-batches, so pieces end at the end
  /// of a run or of a sender's part, and no two neighbours could be a single piece.
  void add_pieces(RowRange held, std::int64_t rank) {
    auto run = std::ranges::partition_point(
        runs_, [&](const Run& before) { return before.target_row + before.rows <= held.first; });
    for (; run != runs_.end() && run->target_row < held.end(); ++run) {
      std::int64_t target = std::max(run->target_row, held.first);
      const std::int64_t end = std::min(run->target_row + run->rows, held.end());
      while (target < end) {
        const std::int64_t source = run->source_row + (target - run->target_row);
        const Holder from = sender_of(request_->sender.of(run->sender), request_->sender.sharding,
                                      sender_rows_[run->sender], source, rank);
        const std::int64_t rows = std::min(end - target, from.rows.end() - source);
        plan_.pieces_.push_back(
            {run->sender, static_cast<std::uint32_t>(from.rank), source - from.rows.first, target - held.first, rows});
        target += rows;
      }
    }
  }

  const ReshardRequest* request_;
  std::vector<SamplePlace> places_;  // by SampleRef::place
  std::vector<std::int64_t> sender_rows_;
  std::vector<Run> runs_;  // runs of the current receiver, in row order
  ReshardPlan plan_;
};

ReshardPlan ReshardPlan::make(const ReshardRequest& request) {
  assert((request.sender.sharding != Sharding::vocabulary && request.receiver.sharding != Sharding::vocabulary) ||
         (request.sender.layout.tensor == request.receiver.layout.tensor &&
          (request.sender.layout.tensor == 1 || request.sender.sharding == request.receiver.sharding)));
  return Maker(request).make();
}

std::span<const ReshardPiece> ReshardPlan::pieces(std::size_t receiver, std::int64_t rank) const {
  const std::size_t at = receiver * ranks_ + static_cast<std::size_t>(rank);
  const std::size_t begin = at == 0 ? 0 : ends_[at - 1];
  return std::span(pieces_).subspan(begin, ends_[at] - begin);
}

ReshardTraffic ReshardPlan::traffic() const {
  ReshardTraffic traffic;
  std::size_t at = 0;
  for (std::size_t slice = 0; slice < ends_.size(); ++slice) {
    for (; at < ends_[slice]; ++at) {
      traffic.moved += pieces_[at].rows;
      if (pieces_[at].sender_rank == slice % ranks_) traffic.same_rank += pieces_[at].rows;
    }
  }
  return traffic;
}

std::int64_t least_rows(const ReshardRequest& request) {
  const ReshardEnd& end = request.receiver;
  std::int64_t least = 0;
  for (std::size_t at = 0; at < request.receivers.size(); ++at) {
    const std::int64_t rows = rows_of(request, request.receivers[at]);
    const Layout layout = end.of(at);
    for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
      least += layout.rows(end.sharding, rows, rank).count;
    }
  }
  return least;
}

// A sample's rows follow each other in the only sending micro-batch that has it, and each sending part is a range of
// rows with a single sender for a given receiving rank. So a sample arrives in at most as many pieces as there are
// parts, and each piece has a row. Holding some of the rows only leaves pieces out, and joining samples reduces their
// number.
std::int64_t max_pieces_of(const ReshardEnd& sender, std::int64_t samples, std::int64_t most_rows) {
  const bool by_rank = sender.sharding == Sharding::rank_rows;
  const std::int64_t parts = sender.sharding == Sharding::replicated ? 1
                             : by_rank                               ? sender.layout.ranks()
                                                                     : sender.layout.context;
  return std::max<std::int64_t>(1, samples * std::min(parts, most_rows));
}

// The sending rank and a receiving rank each hold a single range of a sample's rows, so they have at most a single
// range, and so a single piece, in common.
std::int64_t max_pieces_from(const ReshardEnd& receiver, std::int64_t samples) {
  return std::max<std::int64_t>(1, samples * receiver.layout.ranks());
}

}  // namespace maestro
