// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/reshard.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "tests/schedule/random_graph.hpp"

namespace maestro {
namespace {

using testing::draw;
using testing::Generator;

using Batches = std::vector<std::vector<SampleRef>>;
constexpr std::array shardings{Sharding::replicated, Sharding::context_rows, Sharding::rank_rows, Sharding::vocabulary};

/// Origin of a row in a rank's tensor, and its columns.
struct RowIdentity {
  std::uint32_t place = 0;
  std::int64_t position = 0;
  std::int64_t columns = 0;  ///< tensor index under Sharding::vocabulary
  friend bool operator==(const RowIdentity&, const RowIdentity&) = default;
};

/// Returns a rank's rows of micro-batch `at`; none if its replica's layout lacks the rank.
std::vector<RowIdentity> held_by(std::span<const SampleRef> batch, Axis axis, const ReshardEnd& end, std::int64_t rank,
                                 std::size_t at = 0) {
  const Layout layout = end.of(at);
  if (rank >= layout.ranks()) return {};
  const std::int64_t columns = end.sharding == Sharding::vocabulary ? layout.tensor_of(rank) : 0;
  std::vector<RowIdentity> all;
  for (const SampleRef& sample : batch) {
    for (std::int64_t position = 0; position < sample.rows(axis); ++position) {
      all.push_back({sample.index_in_step, position, columns});
    }
  }
  const RowRange held = layout.rows(end.sharding, static_cast<std::int64_t>(all.size()), rank);
  return {all.begin() + held.first, all.begin() + held.end()};
}

/// Fills the tensors of all sending ranks with identities, transfers the pieces and compares the arriving tensors.
class Carried {
 public:
  Carried(const ReshardRequest& request, const ReshardPlan& plan) : request_(&request), plan_(&plan) {
    for (std::size_t at = 0; at < request.senders.size(); ++at) {
      for (std::int64_t rank = 0; rank < request.sender.layout.ranks(); ++rank) {
        sent_.push_back(held_by(request.senders[at], request.axis, request.sender, rank, at));
      }
    }
  }

  void check() const {
    for (std::size_t receiver = 0; receiver < request_->receivers.size(); ++receiver) {
      for (std::int64_t rank = 0; rank < request_->receiver.layout.ranks(); ++rank) {
        SCOPED_TRACE("receiver " + std::to_string(receiver) + " rank " + std::to_string(rank));
        rows_arrive_once_and_in_order(receiver, rank);
        pieces_are_as_long_as_they_can_be(receiver, rank);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }

 private:
  void rows_arrive_once_and_in_order(std::size_t receiver, std::int64_t rank) const {  // RE-1, RE-2, RE-4
    std::vector<RowIdentity> arrived;
    for (const ReshardPiece& piece : plan_->pieces(receiver, rank)) {
      ASSERT_LT(piece.sender, request_->senders.size());
      ASSERT_LT(piece.sender_rank, request_->sender.of(piece.sender).ranks());
      const auto ranks = static_cast<std::size_t>(request_->sender.layout.ranks());
      const std::vector<RowIdentity>& tensor = sent_[piece.sender * ranks + piece.sender_rank];
      ASSERT_GT(piece.rows, 0);
      ASSERT_GE(piece.source_row, 0);
      ASSERT_LE(piece.source_row + piece.rows, static_cast<std::int64_t>(tensor.size()));
      ASSERT_EQ(piece.target_row, static_cast<std::int64_t>(arrived.size()));
      const auto first = tensor.begin() + piece.source_row;
      arrived.insert(arrived.end(), first, first + piece.rows);
    }
    const auto wanted = held_by(request_->receivers[receiver], request_->axis, request_->receiver, rank, receiver);
    ASSERT_TRUE(std::ranges::equal(arrived, wanted));
  }

  void pieces_are_as_long_as_they_can_be(std::size_t receiver, std::int64_t rank) const {  // RE-1
    const auto pieces = plan_->pieces(receiver, rank);
    for (std::size_t at = 1; at < pieces.size(); ++at) {
      const ReshardPiece& before = pieces[at - 1];
      const ReshardPiece& piece = pieces[at];
      const bool one_rank = before.sender == piece.sender && before.sender_rank == piece.sender_rank;
      EXPECT_FALSE(one_rank && before.source_row + before.rows == piece.source_row);
    }
  }

  const ReshardRequest* request_;
  const ReshardPlan* plan_;
  std::vector<std::vector<RowIdentity>> sent_;  // by sending micro-batch * ranks + rank
};

/// An edge in a step. Samples have 0, 1 or more rows, each end lacks some samples of the other, and micro-batches have
/// any order.
struct RandomEdge {
  Batches senders;
  Batches receivers;
  ReshardRequest request;

  explicit RandomEdge(Generator& random) {
    request.axis = all_axes[random() % all_axes.size()];
    const std::vector<SampleRef> samples = random_samples(random);
    std::vector<SampleRef> sent = samples;
    // A section that runs only for samples with images has only these.
    if (random() % 2 == 0) std::erase_if(sent, [&](const SampleRef& sample) { return sample.rows(request.axis) == 0; });
    senders = random_cut(random, sent);
    std::vector<SampleRef> received = samples;
    if (random() % 2 == 0) std::erase_if(received, [&](const SampleRef&) { return random() % 4 == 0; });
    receivers = random_cut(random, received);
    request.sender = random_end(random);
    request.receiver = random_end(random);
    const bool by_vocabulary =
        request.sender.sharding == Sharding::vocabulary || request.receiver.sharding == Sharding::vocabulary;
    if (by_vocabulary && random() % 2 == 0) {
      request.sender.layout.tensor = request.receiver.layout.tensor = 1;
    } else if (by_vocabulary) {
      request.sender.sharding = request.receiver.sharding = Sharding::vocabulary;
      request.receiver.layout.tensor = request.sender.layout.tensor;
    }
    request.senders.assign(senders.begin(), senders.end());
    request.receivers.assign(receivers.begin(), receivers.end());
  }

  /// Gives each micro-batch a context of its own, at either end.
  void mix(Generator& random) {
    for (auto [end, batches] : {std::pair(&request.sender, &senders), std::pair(&request.receiver, &receivers)}) {
      if (batches->empty()) continue;
      for (std::size_t at = 0; at < batches->size(); ++at) end->contexts.push_back(draw(random, 1, 4));
      end->layout.context = std::ranges::max(end->contexts);
    }
  }

  static std::int64_t random_rows(Generator& random) {
    constexpr std::array<std::int64_t, 5> most{0, 1, 3, 9, 40};
    return draw(random, 0, most[random() % most.size()]);
  }

  static std::vector<SampleRef> random_samples(Generator& random) {
    std::vector<SampleRef> samples(static_cast<std::size_t>(draw(random, 0, 20)));
    for (std::uint32_t place = 0; place < samples.size(); ++place) {
      samples[place] = {
          SampleId(random() % 5), random_rows(random), random_rows(random), random_rows(random), 0, place};
    }
    return samples;
  }

  static Batches random_cut(Generator& random, const std::vector<SampleRef>& samples) {
    const std::int64_t most = draw(random, 1, 8);
    Batches batches;
    std::int64_t room = 0;
    for (const SampleRef& sample : samples) {
      if (room == 0) {
        room = draw(random, 1, most);
        batches.emplace_back();
      }
      batches.back().push_back(sample);
      --room;
    }
    std::ranges::shuffle(batches, random);
    return batches;
  }

  static ReshardEnd random_end(Generator& random) {
    return {{draw(random, 1, 4), draw(random, 1, 4)}, shardings[random() % shardings.size()]};
  }
};

constexpr std::uint64_t random_edges = 20'000;

TEST(Reshard, every_row_reaches_the_ranks_that_hold_it_once_under_random_layouts_and_cuts) {  // RE-1, RE-2, RE-4
  std::set<std::pair<Sharding, Sharding>> pairs;
  for (std::uint64_t seed = 1; seed <= random_edges; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    const RandomEdge edge(random);
    const ReshardPlan plan = ReshardPlan::make(edge.request);
    Carried(edge.request, plan).check();
    EXPECT_EQ(plan.traffic().moved, least_rows(edge.request));
    pairs.emplace(edge.request.sender.sharding, edge.request.receiver.sharding);
    if (HasFailure()) return;
  }
  EXPECT_EQ(pairs.size(), shardings.size() * shardings.size());
}

TEST(Reshard, every_row_reaches_the_ranks_that_hold_it_once_between_micro_batches_of_several_contexts) {  // RE-1, RE-2
  for (std::uint64_t seed = 1; seed <= random_edges; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    RandomEdge edge(random);
    edge.mix(random);
    const ReshardPlan plan = ReshardPlan::make(edge.request);
    Carried(edge.request, plan).check();
    EXPECT_EQ(plan.traffic().moved, least_rows(edge.request));
    if (HasFailure()) return;
  }
}

/// Returns the expected pieces with a single rank at each end: looks up every receiving row, then joins neighbours.
std::vector<ReshardPiece> joined_row_by_row(const ReshardRequest& request, std::size_t receiver) {
  std::map<std::pair<std::uint32_t, std::int64_t>, std::pair<std::uint32_t, std::int64_t>> sources;
  for (std::uint32_t sender = 0; sender < request.senders.size(); ++sender) {
    std::int64_t row = 0;
    for (const RowIdentity& identity : held_by(request.senders[sender], request.axis, {}, 0)) {
      sources[{identity.place, identity.position}] = {sender, row++};
    }
  }
  std::vector<ReshardPiece> pieces;
  std::int64_t target = 0;
  for (const RowIdentity& identity : held_by(request.receivers[receiver], request.axis, {}, 0)) {
    const auto [sender, row] = sources.at({identity.place, identity.position});
    const bool follows =
        !pieces.empty() && pieces.back().sender == sender && pieces.back().source_row + pieces.back().rows == row;
    if (follows) {
      ++pieces.back().rows;
    } else {
      pieces.push_back({sender, 0, row, target, 1});
    }
    ++target;
  }
  return pieces;
}

TEST(Reshard, single_ranks_exchange_whole_runs_of_samples) {  // RE-1
  for (std::uint64_t seed = 1; seed <= random_edges / 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    RandomEdge edge(random);
    edge.request.sender.layout = edge.request.receiver.layout = Layout{};
    const ReshardPlan plan = ReshardPlan::make(edge.request);
    for (std::size_t receiver = 0; receiver < edge.receivers.size(); ++receiver) {
      EXPECT_TRUE(std::ranges::equal(plan.pieces(receiver, 0), joined_row_by_row(edge.request, receiver)));
    }
    EXPECT_EQ(plan.traffic().same_rank, plan.traffic().moved);
    if (HasFailure()) return;
  }
}

TEST(Reshard, no_rank_gets_or_sends_more_pieces_than_slots_and_blocks_have_room_for) {
  bool most_received = false;
  bool most_sent = false;
  for (std::uint64_t seed = 1; seed <= random_edges; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator random(seed);
    const RandomEdge edge(random);
    const ReshardPlan plan = ReshardPlan::make(edge.request);
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> sent;
    for (std::size_t receiver = 0; receiver < edge.receivers.size(); ++receiver) {
      std::int64_t most_rows = 0;
      for (const SampleRef& sample : edge.receivers[receiver]) {
        most_rows = std::max(most_rows, sample.rows(edge.request.axis));
      }
      const auto samples = static_cast<std::int64_t>(edge.receivers[receiver].size());
      const std::int64_t bound = max_pieces_of(edge.request.sender, samples, most_rows);
      for (std::int64_t rank = 0; rank < edge.request.receiver.layout.ranks(); ++rank) {
        const auto pieces = plan.pieces(receiver, rank);
        EXPECT_LE(static_cast<std::int64_t>(pieces.size()), bound);
        most_received |= bound > samples && static_cast<std::int64_t>(pieces.size()) == bound;
        for (const ReshardPiece& piece : pieces) ++sent[{piece.sender, piece.sender_rank}];
      }
    }
    for (const auto& [from, pieces] : sent) {
      const auto samples = static_cast<std::int64_t>(edge.senders[from.first].size());
      const std::int64_t bound = max_pieces_from(edge.request.receiver, samples);
      EXPECT_LE(pieces, bound);
      most_sent |= bound > samples && pieces == bound;
    }
    if (HasFailure()) return;
  }
  EXPECT_TRUE(most_received && most_sent) << "the bounds are never reached, so they are too wide";
}

TEST(Reshard, a_slot_has_room_for_a_piece_of_every_part_of_every_sample) {
  const ReshardEnd by_rank{{2, 3}, Sharding::rank_rows};
  EXPECT_EQ(max_pieces_of(by_rank, 4, 100), 24);
  EXPECT_EQ(max_pieces_of(by_rank, 4, 5), 20);  // a piece has a row
  EXPECT_EQ(max_pieces_of({{2, 3}, Sharding::context_rows}, 4, 100), 12);
  EXPECT_EQ(max_pieces_of({{2, 3}, Sharding::vocabulary}, 4, 100), 12);
  EXPECT_EQ(max_pieces_of({{2, 3}, Sharding::replicated}, 4, 100), 4);
  EXPECT_EQ(max_pieces_of({}, 4, 100), 4);
  EXPECT_EQ(max_pieces_of(by_rank, 4, 0), 1);
  EXPECT_EQ(max_pieces_from(by_rank, 4), 24);
  EXPECT_EQ(max_pieces_from({}, 4), 4);
}

/// Returns samples with 1, 2, 3, ... rows, `size` in each micro-batch.
Batches counted(std::uint32_t samples, std::size_t size) {
  Batches batches;
  for (std::uint32_t place = 0; place < samples; ++place) {
    if (batches.empty() || batches.back().size() == size) batches.emplace_back();
    batches.back().push_back({SampleId(place), place + 1, 0, 0, 0, place});
  }
  return batches;
}

struct NamedEdge {
  Batches senders;
  Batches receivers;
  ReshardRequest request;
  NamedEdge(Batches from, Batches to, ReshardEnd sender, ReshardEnd receiver)
      : senders(std::move(from)), receivers(std::move(to)), request{Axis::tokens, sender, receiver, {}, {}} {
    request.senders.assign(senders.begin(), senders.end());
    request.receivers.assign(receivers.begin(), receivers.end());
  }
  /// Returns all pieces of a receiving micro-batch, by rank.
  [[nodiscard]] std::vector<std::vector<ReshardPiece>> pieces(std::size_t receiver = 0) const {
    const ReshardPlan plan = ReshardPlan::make(request);
    std::vector<std::vector<ReshardPiece>> all;
    for (std::int64_t rank = 0; rank < request.receiver.layout.ranks(); ++rank) {
      const auto made = plan.pieces(receiver, rank);
      all.emplace_back(made.begin(), made.end());
    }
    return all;
  }
};

using Pieces = std::vector<std::vector<ReshardPiece>>;  // by receiving rank

TEST(Reshard, two_tensor_ranks_send_their_halves_to_one) {
  const Batches four = counted(4, 4);  // 10 rows
  EXPECT_EQ(NamedEdge(four, four, {{2, 1}, Sharding::rank_rows}, {}).pieces(),
            (Pieces{{{0, 0, 0, 0, 5}, {0, 1, 0, 5, 5}}}));
  // Rows that both hold are sent by the first.
  EXPECT_EQ(NamedEdge(four, four, {{2, 1}, Sharding::context_rows}, {}).pieces(), (Pieces{{{0, 0, 0, 0, 10}}}));
}

TEST(Reshard, two_context_ranks_send_all_rows_to_both_tensor_ranks_and_own_rows_to_their_own) {
  const Batches four = counted(4, 4);
  const ReshardEnd context{{1, 2}, Sharding::context_rows};
  const std::vector<ReshardPiece> both{{0, 0, 0, 0, 5}, {0, 1, 0, 5, 5}};
  EXPECT_EQ(NamedEdge(four, four, context, {{2, 1}, Sharding::context_rows}).pieces(), (Pieces{both, both}));
  EXPECT_EQ(NamedEdge(four, four, context, {{2, 1}, Sharding::rank_rows}).pieces(),
            (Pieces{{{0, 0, 0, 0, 5}}, {{0, 1, 0, 0, 5}}}));
}

TEST(Reshard, a_micro_batch_of_eight_feeds_three_smaller_ones) {
  const NamedEdge edge(counted(8, 8), counted(8, 3), {{2, 1}, Sharding::rank_rows}, {});  // 36 rows: 18 on each rank
  EXPECT_EQ(edge.pieces(0), (Pieces{{{0, 0, 0, 0, 6}}}));                                 // 1 + 2 + 3
  EXPECT_EQ(edge.pieces(1), (Pieces{{{0, 0, 6, 0, 12}, {0, 1, 0, 12, 3}}}));              // 4 + 5 + 6
  EXPECT_EQ(edge.pieces(2), (Pieces{{{0, 1, 3, 0, 15}}}));                                // 7 + 8
}

TEST(Reshard, a_rank_without_rows_gets_nothing) {  // RE-2
  const Batches one = counted(1, 1);               // 1 row
  EXPECT_EQ(NamedEdge(one, one, {}, {{2, 2}, Sharding::rank_rows}).pieces(), (Pieces{{}, {}, {}, {{0, 0, 0, 0, 1}}}));
  const Batches none{{{SampleId(0), 0, 0, 0, 0, 0}}};
  EXPECT_EQ(NamedEdge(none, none, {}, {{2, 1}, Sharding::replicated}).pieces(), (Pieces{{}, {}}));
}

/// Returns the sending rank by receiving rank, if each receiving rank has a single piece.
std::vector<std::uint32_t> senders_of(ReshardEnd sender, ReshardEnd receiver) {
  const Batches four = counted(4, 4);
  std::vector<std::uint32_t> ranks;
  for (const auto& pieces : NamedEdge(four, four, sender, receiver).pieces()) {
    EXPECT_EQ(pieces.size(), 1u);
    for (const ReshardPiece& piece : pieces) ranks.push_back(piece.sender_rank);
  }
  return ranks;
}

TEST(Reshard, receiving_ranks_go_round_the_ranks_that_hold_the_same_rows) {  // RE-3
  using Ranks = std::vector<std::uint32_t>;
  const auto whole = [](Layout layout) { return ReshardEnd{layout, Sharding::replicated}; };
  const auto context = [](Layout layout) { return ReshardEnd{layout, Sharding::context_rows}; };
  EXPECT_EQ(senders_of(whole({2, 2}), whole({2, 2})), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(senders_of(whole({1, 2}), whole({2, 2})), (Ranks{0, 1, 0, 1}));
  EXPECT_EQ(senders_of(whole({4, 1}), context({1, 4})), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(senders_of(context({2, 2}), context({2, 2})), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(senders_of(context({4, 1}), context({2, 2})), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(senders_of(context({2, 1}), context({4, 1})), (Ranks{0, 1, 0, 1}));
}

TEST(Reshard, traffic_counts_what_every_rank_receives_and_what_stays_on_a_rank) {
  const Batches four = counted(4, 4);
  const auto traffic = [&](ReshardEnd sender, ReshardEnd receiver) {
    const NamedEdge edge(four, four, sender, receiver);
    const ReshardTraffic made = ReshardPlan::make(edge.request).traffic();
    EXPECT_EQ(made.moved, least_rows(edge.request));
    return std::pair(made.moved, made.same_rank);
  };
  EXPECT_EQ(traffic({}, {}), std::pair(10L, 10L));
  EXPECT_EQ(traffic({}, {{2, 1}, Sharding::rank_rows}), std::pair(10L, 5L));
  EXPECT_EQ(traffic({}, {{2, 1}, Sharding::replicated}), std::pair(20L, 10L));
  EXPECT_EQ(traffic({{1, 2}, Sharding::context_rows}, {{2, 1}, Sharding::context_rows}), std::pair(20L, 10L));
}

}  // namespace
}  // namespace maestro
