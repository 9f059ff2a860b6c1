// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/forward_replay.hpp"

#include <gtest/gtest.h>

#include "tests/schedule/planner_options.hpp"
#include "tests/schedule/small_graph.hpp"

namespace maestro {
namespace {

using testing::draw;
using testing::Generator;
using testing::options_of;
using testing::random_samples;
using testing::roomy;

using RingKey = std::tuple<Channel, ReplicaIndex, LayoutRank>;
using Sequence = std::tuple<Channel, ReplicaIndex, LayoutRank, std::uint64_t>;
using BatchKey = std::tuple<SectionId, StepId, Pass, std::uint32_t>;

BatchKey key_of(const MicroBatchPlan& batch) {
  return {batch.section, batch.step, batch.pass, batch.index};
}

/// A run of random steps, and rings of the sections that are not repeatable with random arrivals.
class RandomRun {
 public:
  explicit RandomRun(std::uint64_t seed)
      : random_(seed),
        graph_(roomy(testing::random_graph(random_, limits(), draw(random_, 1, 8)))),
        planner_(options_of(graph_, "wavefront", {2, 13, 13})),
        replay_(graph_) {}

  [[nodiscard]] ForwardReplay& replay() { return replay_; }
  [[nodiscard]] const SectionGraph& graph() const { return graph_; }

  /// Returns the micro-batches of the repeatable sections as their lanes receive them.
  std::vector<MicroBatchPlan> announce_a_step() {
    const Pass pass = random_() % 3 == 0 ? Pass::evaluate : Pass::train;
    const PlannedStep planned =
        planner_.plan(StepId(++step_), pass, random_samples(random_, draw(random_, 1, 9)), 1).value_or_throw();
    std::vector<MicroBatchPlan> sent;
    for (const MicroBatchPlan& batch : planned.plan.micro_batches) {
      if (!replay_.repeatable(batch.section)) continue;
      open_.push_back(batch);
      sent.push_back(replay_.announced(batch));
    }
    return sent;
  }
  void close_first_step() {
    if (open_.empty()) return;
    const StepId step = open_.front().step;
    for (const MicroBatchPlan& batch : open_) {
      if (batch.step != step) continue;
      for (const PieceOut& piece : batch.pieces) {
        std::uint64_t& released = released_[{piece.channel, piece.receiver, piece.target_rank}];
        released = std::max(released, piece.sequence + 1);
      }
    }
    replay_.closed(step, open_.front().pass);
    std::erase_if(open_, [&](const MicroBatchPlan& batch) { return batch.step == step; });
  }
  /// Draws the sequences that have arrived, and the micro-batches whose end was reported.
  std::vector<RingArrivals> draw_arrivals() {
    lacking_.clear();
    not_reported_.clear();
    std::map<RingKey, RingArrivals> rings;
    std::set<Sequence> drawn;
    for (const MicroBatchPlan& batch : open_) {
      if (random_() % 2 == 0) {
        replay_.done(batch.section, batch.step, batch.pass, batch.index);
        reported_.insert(key_of(batch));
      }
      if (!reported_.contains(key_of(batch))) not_reported_.insert(key_of(batch));
      for (const PieceOut& piece : batch.pieces) {
        if (replay_.repeatable(graph_.receiver(piece.channel))) continue;
        const RingKey key{piece.channel, piece.receiver, piece.target_rank};
        RingArrivals& ring = rings[key];
        ring = {piece.channel, piece.receiver, piece.target_rank, released_[key], std::move(ring.complete)};
        if (!drawn.emplace(piece.channel, piece.receiver, piece.target_rank, piece.sequence).second) continue;
        if (random_() % 2 == 0) {
          ring.complete.push_back(piece.sequence);
        } else {
          lacking_.emplace(piece.channel, piece.receiver, piece.target_rank, piece.sequence);
        }
      }
    }
    std::vector<RingArrivals> all;
    for (auto& [key, ring] : rings) all.push_back(std::move(ring));
    return all;
  }
  [[nodiscard]] const std::set<Sequence>& lacking() const { return lacking_; }
  [[nodiscard]] const std::set<BatchKey>& not_reported() const { return not_reported_; }
  [[nodiscard]] const std::vector<MicroBatchPlan>& open() const { return open_; }

 private:
  static testing::GraphLimits limits() {
    testing::GraphLimits limits;
    limits.tensor = 2;
    limits.context = 2;
    return limits;
  }
  Generator random_;
  SectionGraph graph_;
  StepPlanner planner_;
  ForwardReplay replay_;
  std::uint64_t step_ = 0;
  std::vector<MicroBatchPlan> open_;
  std::map<RingKey, std::uint64_t> released_;
  std::set<Sequence> lacking_;
  std::set<BatchKey> reported_;
  std::set<BatchKey> not_reported_;
};

/// Checks what lanes of repeatable sections receive after they have started again.
class LaneCheck {
 public:
  LaneCheck(const SectionGraph& graph, const ForwardReplay& replay) : graph_(&graph), replay_(&replay) {}

  void receive(const std::vector<MicroBatchPlan>& batches) {
    std::map<RingKey, std::uint64_t> expected = next_;
    for (const MicroBatchPlan& batch : batches) {
      for (const ArrivalPlan& arrival : batch.arrivals) {
        const RingKey key{arrival.channel, batch.replica, arrival.rank};
        EXPECT_EQ(arrival.sequence, expected[key]++);  // FR-3, in the order of the lane
        for (std::uint32_t piece = 0; piece < arrival.pieces.size(); ++piece) {
          awaited_.emplace(arrival.channel, batch.replica, arrival.rank, arrival.sequence, piece);
        }
      }
      for (const PieceOut& piece : batch.pieces) {
        if (!replay_->repeatable(graph_->receiver(piece.channel))) continue;
        EXPECT_TRUE(
            sent_.emplace(piece.channel, piece.receiver, piece.target_rank, piece.sequence, piece.index).second);
      }
    }
    next_ = expected;
    EXPECT_EQ(sent_, awaited_);
  }

 private:
  const SectionGraph* graph_;
  const ForwardReplay* replay_;
  std::map<RingKey, std::uint64_t> next_;
  using Piece = std::tuple<Channel, ReplicaIndex, LayoutRank, std::uint64_t, std::uint32_t>;
  std::set<Piece> awaited_;
  std::set<Piece> sent_;
};

/// Checks FR-1 for pieces to rings of other sections.
void each_lacking_sequence_is_sent_once(const RandomRun& run, const std::vector<MicroBatchPlan>& again,
                                        const ForwardReplay& replay) {
  const auto pieces_of = [&](const std::vector<MicroBatchPlan>& batches) {
    std::multiset<std::pair<Sequence, std::uint32_t>> pieces;
    for (const MicroBatchPlan& batch : batches) {
      for (const PieceOut& piece : batch.pieces) {
        if (replay.repeatable(run.graph().receiver(piece.channel))) continue;
        pieces.insert({{piece.channel, piece.receiver, piece.target_rank, piece.sequence}, piece.index});
      }
    }
    return pieces;
  };
  std::multiset<std::pair<Sequence, std::uint32_t>> wanted = pieces_of(run.open());
  std::erase_if(wanted, [&](const auto& piece) { return !run.lacking().contains(piece.first); });
  EXPECT_EQ(pieces_of(again), wanted);
}

/// Checks FR-2: every repeated micro-batch has a piece that is needed, or its end is unknown.
void no_work_is_done_for_nothing(const RandomRun& run, const std::vector<MicroBatchPlan>& again) {
  std::set<BatchKey> repeated;
  for (const MicroBatchPlan& batch : again) {
    EXPECT_TRUE(repeated.insert(key_of(batch)).second);
    EXPECT_TRUE(!batch.pieces.empty() || run.not_reported().contains(key_of(batch)));
  }
  for (const BatchKey& key : run.not_reported()) EXPECT_TRUE(repeated.contains(key));
}

TEST(ForwardReplay, random_runs_get_what_they_lack_and_nothing_twice) {  // FR-1, FR-2, FR-3
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomRun run(seed);
    for (int generation = 0; generation < 3; ++generation) {
      for (int step = 0; step < 3; ++step) run.announce_a_step();
      run.close_first_step();
      const std::vector<RingArrivals> arrivals = run.draw_arrivals();
      const std::vector<MicroBatchPlan> again = run.replay().again(arrivals);
      each_lacking_sequence_is_sent_once(run, again, run.replay());
      no_work_is_done_for_nothing(run, again);
      LaneCheck lanes(run.graph(), run.replay());
      lanes.receive(again);
      for (int step = 0; step < 2; ++step) lanes.receive(run.announce_a_step());  // numbers continue
    }
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(ForwardReplay, the_end_of_a_micro_batch_counts_once_and_only_while_its_step_is_open) {
  RandomRun run(7);
  run.announce_a_step();
  const MicroBatchPlan first = run.open().front();
  EXPECT_TRUE(run.replay().done(first.section, first.step, first.pass, first.index));
  EXPECT_FALSE(run.replay().done(first.section, first.step, first.pass, first.index));
  run.close_first_step();
  EXPECT_FALSE(run.replay().done(first.section, first.step, first.pass, first.index));
}

TEST(ForwardReplay, sections_behind_a_trained_section_are_not_repeatable) {
  SectionGraph graph = testing::distillation_graph();
  testing::add_section(graph, "judge", Role::frozen, {"student"});
  testing::add_section(graph, "head", Role::passing, {"student"});
  EXPECT_EQ(graph.repeatable(), (std::vector<bool>{true, true, false, false, false}));
}

}  // namespace
}  // namespace maestro
