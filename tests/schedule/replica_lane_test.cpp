// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/replica_lane.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <tuple>

#include "tests/schedule/random_graph.hpp"

namespace maestro {
namespace {

using testing::draw;
using testing::Generator;
using Kind = ReplicaLane::Kind;

constexpr EdgeId input_edge(0);
constexpr EdgeId output_edge(1);
constexpr BuffersFree all_free{true, true};

LaneOptions trained(std::int64_t max_in_flight, bool awaits_gradient = true) {
  return {true, awaits_gradient, max_in_flight};
}

MicroBatchPlan batch_of(std::uint32_t index, bool gradient, Pass pass = Pass::train, std::uint32_t ranks = 1) {
  MicroBatchPlan plan;
  plan.index = index;
  plan.backward_order = index;
  plan.pass = pass;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) plan.arrivals.push_back({input_edge, false, index, {}, rank});
  if (!gradient || pass != Pass::train) return plan;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) plan.arrivals.push_back({output_edge, true, index, {}, rank});
  return plan;
}

StepBoundary end_of(std::uint64_t step) {
  StepBoundary mark;
  mark.step = StepId(step);
  return mark;
}

TEST(ReplicaLane, forward_passes_run_in_token_order_whatever_arrives_first) {  // RL-1, RL-2
  ReplicaLane lane({});
  lane.enqueue(batch_of(0, false));
  lane.enqueue(batch_of(1, false));
  lane.arrived(input_edge, false, 1);
  EXPECT_FALSE(lane.next(all_free));
  ASSERT_NE(lane.missing_arrival(), nullptr);
  EXPECT_EQ(lane.missing_arrival()->sequence, 0u);
  lane.arrived(input_edge, false, 0);
  EXPECT_EQ(lane.next(all_free)->batch->index, 0u);
  EXPECT_TRUE(lane.busy());
  EXPECT_FALSE(lane.next(all_free));
  EXPECT_EQ(lane.finished()->index, 0u);
  EXPECT_EQ(lane.next(all_free)->batch->index, 1u);
}

TEST(ReplicaLane, a_pass_waits_for_the_arrivals_of_all_ranks) {  // RL-2
  ReplicaLane lane(trained(1));
  lane.enqueue(batch_of(0, true, Pass::train, 2));
  const auto missing_rank = [&] {
    const ArrivalPlan* missing = lane.missing_arrival();
    EXPECT_NE(missing, nullptr);
    return missing == nullptr ? -1 : static_cast<int>(missing->rank);
  };
  lane.arrived(input_edge, false, 0, 1);
  EXPECT_FALSE(lane.next(all_free));
  EXPECT_EQ(missing_rank(), 0);
  lane.arrived(input_edge, false, 0, 0);
  ASSERT_EQ(lane.next(all_free)->kind, Kind::forward);
  EXPECT_FALSE(lane.finished());
  lane.arrived(output_edge, true, 0, 0);
  EXPECT_FALSE(lane.next(all_free));
  EXPECT_EQ(missing_rank(), 1);
  lane.arrived(output_edge, true, 0, 1);
  EXPECT_EQ(lane.next(all_free)->kind, Kind::backward);
  EXPECT_TRUE(lane.finished());
  EXPECT_TRUE(lane.idle());
}

TEST(ReplicaLane, a_pass_waits_for_the_buffers_it_writes_and_for_no_others) {  // RL-2
  ReplicaLane frozen({});
  frozen.enqueue(batch_of(0, false));
  frozen.arrived(input_edge, false, 0);
  EXPECT_FALSE(frozen.next({false, true}));
  EXPECT_TRUE(frozen.next({true, false}));

  ReplicaLane last(trained(1, false));  // forward and backward together: writes both
  last.enqueue(batch_of(0, false));
  last.arrived(input_edge, false, 0);
  EXPECT_FALSE(last.next({true, false}));
  EXPECT_FALSE(last.next({false, true}));
  EXPECT_EQ(last.next(all_free)->kind, Kind::forward_backward);

  ReplicaLane split(trained(1));
  split.enqueue(batch_of(0, true));
  split.arrived(input_edge, false, 0);
  ASSERT_EQ(split.next({true, false})->kind, Kind::forward);
  EXPECT_FALSE(split.finished());
  split.arrived(output_edge, true, 0);
  EXPECT_FALSE(split.next({true, false}));
  EXPECT_EQ(split.next({false, true})->kind, Kind::backward);
}

TEST(ReplicaLane, forward_stops_at_max_in_flight_and_backward_goes_first) {  // RL-2, RL-3
  ReplicaLane lane(trained(2));
  for (std::uint32_t index = 0; index < 4; ++index) {
    lane.enqueue(batch_of(index, true));
    lane.arrived(input_edge, false, index);
  }
  for (std::uint32_t index = 0; index < 2; ++index) {
    ASSERT_EQ(lane.next(all_free)->kind, Kind::forward);
    EXPECT_FALSE(lane.finished());
  }
  EXPECT_FALSE(lane.next(all_free));
  lane.arrived(output_edge, true, 1);  // not the oldest
  EXPECT_FALSE(lane.next(all_free));
  lane.arrived(output_edge, true, 0);
  auto work = lane.next(all_free);
  EXPECT_EQ(work->kind, Kind::backward);
  EXPECT_EQ(work->batch->index, 0u);
  EXPECT_EQ(lane.finished()->index, 0u);
  work = lane.next(all_free);  // a forward pass may run, too
  EXPECT_EQ(work->kind, Kind::backward);
  EXPECT_EQ(work->batch->index, 1u);
}

TEST(ReplicaLane, the_plan_says_what_goes_first_when_both_passes_could_run) {  // RL-3
  ReplicaLane lane(trained(3));
  for (std::uint32_t index = 0; index < 3; ++index) {
    MicroBatchPlan plan = batch_of(index, true);
    plan.backward_after = 2;
    lane.enqueue(plan);
    lane.arrived(input_edge, false, index);
  }
  ASSERT_EQ(lane.next(all_free)->kind, Kind::forward);
  EXPECT_FALSE(lane.finished());
  lane.arrived(output_edge, true, 0);
  auto work = lane.next(all_free);
  EXPECT_EQ(work->kind, Kind::forward);  // two forward passes precede it
  EXPECT_EQ(work->batch->index, 1u);
  EXPECT_FALSE(lane.finished());
  EXPECT_EQ(lane.next(all_free)->kind, Kind::backward);
}

TEST(ReplicaLane, a_lane_with_work_that_can_run_does_not_wait_for_what_the_plan_has_first) {  // RL-3
  ReplicaLane early(trained(2));
  MicroBatchPlan plan = batch_of(0, true);
  plan.backward_after = 2;
  early.enqueue(plan);
  early.enqueue(batch_of(1, true));
  early.arrived(input_edge, false, 0);
  ASSERT_EQ(early.next(all_free)->kind, Kind::forward);
  EXPECT_FALSE(early.finished());
  early.arrived(output_edge, true, 0);
  EXPECT_EQ(early.next(all_free)->kind, Kind::backward);  // the input of the next forward pass is not here
}

TEST(ReplicaLane, backward_passes_follow_their_ranks_and_slots_retire_out_of_order) {  // RL-3
  ReplicaLane lane(trained(2));
  for (std::uint32_t index = 0; index < 2; ++index) {
    MicroBatchPlan plan = batch_of(index, true);
    plan.backward_order = 1 - index;
    lane.enqueue(plan);
    lane.arrived(input_edge, false, index);
    ASSERT_EQ(lane.next(all_free)->kind, Kind::forward);
    EXPECT_FALSE(lane.finished());
  }
  lane.enqueue(end_of(1));
  lane.arrived(output_edge, true, 0);
  EXPECT_FALSE(lane.next(all_free));
  lane.arrived(output_edge, true, 1);
  EXPECT_EQ(lane.next(all_free)->batch->index, 1u);
  EXPECT_EQ(lane.finished()->index, 1u);
  EXPECT_EQ(lane.next(all_free)->batch->index, 0u);
  EXPECT_EQ(lane.finished()->index, 0u);
  EXPECT_EQ(lane.next(all_free)->kind, Kind::mark);
}

TEST(ReplicaLane, passes_of_a_later_phase_wait_until_it_is_opened_for_their_group) {  // RL-2
  ReplicaLane lane(trained(1));
  MicroBatchPlan plan = batch_of(0, true);
  plan.step = StepId(3);
  plan.group = 2;
  plan.forward_phase = 1;
  plan.backward_phase = 2;
  lane.enqueue(plan);
  lane.enqueue(end_of(3));
  lane.arrived(input_edge, false, 0);
  lane.open_phase(StepId(3), 1, 5);  // another group
  EXPECT_FALSE(lane.next(all_free));
  lane.open_phase(StepId(3), 2, 1);
  ASSERT_EQ(lane.next(all_free)->kind, Kind::forward);
  EXPECT_FALSE(lane.finished());
  lane.arrived(output_edge, true, 0);
  EXPECT_FALSE(lane.next(all_free));
  lane.open_phase(StepId(3), 2, 2);
  EXPECT_EQ(lane.next(all_free)->kind, Kind::backward);
}

TEST(ReplicaLane, passes_of_an_earlier_phase_run_when_a_later_phase_is_open_and_phases_end_with_their_step) {  // RL-2
  ReplicaLane lane({});
  MicroBatchPlan plan = batch_of(0, false);
  plan.step = StepId(3);
  plan.forward_phase = 1;
  lane.enqueue(plan);
  lane.enqueue(end_of(3));
  lane.arrived(input_edge, false, 0);
  lane.open_phase(StepId(3), 0, 2);
  lane.open_phase(StepId(4), 0, 1);  // ahead of its step
  ASSERT_TRUE(lane.next(all_free));
  EXPECT_TRUE(lane.finished());
  ASSERT_EQ(lane.next(all_free)->kind, Kind::mark);
  EXPECT_FALSE(lane.finished());
  plan.step = StepId(4);
  plan.arrivals[0].sequence = 1;
  lane.enqueue(plan);
  lane.arrived(input_edge, false, 1);
  EXPECT_TRUE(lane.next(all_free));
}

TEST(ReplicaLane, every_step_counts_its_passes_anew) {  // RL-3
  ReplicaLane lane(trained(2));
  for (std::uint32_t step = 0; step < 2; ++step) {
    for (std::uint32_t at = 0; at < 2; ++at) {
      MicroBatchPlan plan = batch_of(2 * step + at, true);
      plan.backward_order = at;
      plan.backward_after = 2;  // both forward passes first
      lane.enqueue(plan);
      lane.arrived(input_edge, false, plan.index);
      lane.arrived(output_edge, true, plan.index);
    }
    lane.enqueue(end_of(step + 1));
    for (const Kind kind : {Kind::forward, Kind::forward, Kind::backward, Kind::backward, Kind::mark}) {
      const auto work = lane.next(all_free);
      ASSERT_TRUE(work);
      EXPECT_EQ(work->kind, kind) << "step " << step;
      (void)lane.finished();
    }
  }
}

TEST(ReplicaLane, an_evaluated_micro_batch_retires_with_its_forward_pass) {
  ReplicaLane lane(trained(1));
  lane.enqueue(batch_of(0, true, Pass::evaluate));
  lane.arrived(input_edge, false, 0);
  EXPECT_EQ(lane.next(all_free)->kind, Kind::forward);
  EXPECT_EQ(lane.finished()->index, 0u);
  EXPECT_TRUE(lane.idle());
}

TEST(ReplicaLane, a_mark_waits_for_what_is_before_it_and_holds_what_is_behind_it) {  // RL-4
  ReplicaLane lane(trained(2));
  lane.enqueue(batch_of(0, true));
  lane.enqueue(end_of(7));
  lane.enqueue(batch_of(1, true));
  for (std::uint32_t index = 0; index < 2; ++index) lane.arrived(input_edge, false, index);
  ASSERT_EQ(lane.next(all_free)->kind, Kind::forward);
  EXPECT_FALSE(lane.finished());
  EXPECT_FALSE(lane.next(all_free));
  lane.arrived(output_edge, true, 0);
  ASSERT_EQ(lane.next(all_free)->kind, Kind::backward);
  EXPECT_TRUE(lane.finished());
  const auto mark = lane.next(all_free);
  ASSERT_EQ(mark->kind, Kind::mark);
  EXPECT_EQ(mark->mark.step, StepId(7));
  EXPECT_FALSE(lane.next(all_free));
  EXPECT_FALSE(lane.finished());
  EXPECT_EQ(lane.next(all_free)->batch->index, 1u);
}

TEST(ReplicaLane, an_arrival_before_its_token_is_kept) {
  ReplicaLane lane({});
  lane.arrived(input_edge, false, 0);
  lane.enqueue(batch_of(0, false));
  EXPECT_TRUE(lane.next(all_free));
}

TEST(ReplicaLane, who_waits_for_whom_is_the_oldest_micro_batch_that_misses_something) {
  ReplicaLane lane(trained(1));
  EXPECT_EQ(lane.waiting_batch(), nullptr);
  lane.enqueue(batch_of(0, true));
  EXPECT_FALSE(lane.missing_arrival()->gradient);
  lane.arrived(input_edge, false, 0);
  (void)lane.next(all_free);
  EXPECT_EQ(lane.waiting_batch(), nullptr);  // busy: it waits for no arrival
  (void)lane.finished();
  EXPECT_EQ(lane.waiting_batch()->index, 0u);
  EXPECT_TRUE(lane.missing_arrival()->gradient);
  lane.enqueue(batch_of(1, true));
  lane.arrived(output_edge, true, 0);
  EXPECT_EQ(lane.waiting_batch()->index, 1u);  // micro-batch 0 has all that it needs
}

/// Feeds a lane work items, arrivals and free buffers in random order and checks the passes that it runs.
class RandomLane {
 public:
  explicit RandomLane(std::uint64_t seed)
      : random_(seed),
        awaits_(random_() % 2 == 0),
        trained_(awaits_ || random_() % 2 == 0),
        max_in_flight_(draw(random_, 1, 3)),
        devices_(static_cast<std::uint32_t>(draw(random_, 1, 3))),
        lane_({trained_, awaits_, max_in_flight_}) {
    std::uint32_t index = 0;
    for (std::uint64_t step = 1; step <= 5; ++step) {
      const Pass pass = random_() % 3 == 0 ? Pass::evaluate : Pass::train;
      const std::int64_t count = draw(random_, 0, 5);
      std::vector<std::uint32_t> ranks;
      for (std::uint32_t rank = 0; rank < count; ++rank) ranks.push_back(rank);
      const bool splits = awaits_ && pass == Pass::train;
      if (splits && max_in_flight_ > 1 && ranks.size() > 1) std::swap(ranks[0], ranks[1]);
      const std::uint32_t first = index;
      order_.resize(first + ranks.size());
      for (const std::uint32_t rank : ranks) {
        order_[first + rank] = index;
        tokens_.push_back({batch_of(index, awaits_, pass, devices_), 0});
        tokens_.back().batch.backward_order = rank;
        send(input_edge, index++);
      }
      tokens_.push_back({{}, step});
    }
    batches_ = index;
  }

  void run() {
    for (int turn = 0; turn < 4000 && !(tokens_.empty() && lane_.idle()); ++turn) {
      switch (random_() % 4) {
        case 0:
          enqueue_token();
          break;
        case 1:
          deliver_arrival();
          break;
        case 2:
          start();
          break;
        default:
          if (lane_.busy()) finish();
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_TRUE(tokens_.empty() && lane_.idle());
    EXPECT_EQ(retired_, batches_);  // nothing lost
    EXPECT_EQ(marks_, 5u);
  }

 private:
  struct Token {
    MicroBatchPlan batch;
    std::uint64_t mark = 0;
  };
  void enqueue_token() {
    if (tokens_.empty()) return;
    if (tokens_.front().mark > 0) {
      lane_.enqueue(end_of(tokens_.front().mark));
      batches_before_mark_.push_back(enqueued_);
    } else {
      lane_.enqueue(tokens_.front().batch);
      ++enqueued_;
    }
    tokens_.pop_front();
  }
  void send(EdgeId edge, std::uint32_t sequence) {
    for (std::uint32_t device = 0; device < devices_; ++device) arrivals_.push_back({edge, sequence, device});
  }
  [[nodiscard]] bool is_here(EdgeId edge, std::uint32_t sequence) const {
    const auto found = here_.find({edge, sequence});
    return found != here_.end() && found->second == devices_;
  }
  void deliver_arrival() {
    if (arrivals_.empty()) return;
    std::swap(arrivals_.front(), arrivals_[random_() % arrivals_.size()]);
    const auto [edge, sequence, device] = arrivals_.front();
    lane_.arrived(edge, edge == output_edge, sequence, device);
    ++here_[{edge, sequence}];
    arrivals_.pop_front();
  }
  void start() {
    const BuffersFree free{random_() % 4 != 0, random_() % 4 != 0};
    const auto work = lane_.next(free);
    if (!work) return;
    kind_ = work->kind;
    if (kind_ == Kind::mark) {
      ASSERT_EQ(work->mark.step.value(), marks_ + 1);
      ASSERT_EQ(retired_, batches_before_mark_[marks_]);  // RL-4
      return;
    }
    running_ = work->batch->index;
    pass_ = work->batch->pass;
    const bool forward = kind_ != Kind::backward;
    ASSERT_EQ(running_, forward ? forwarded_ : order_[retired_]);  // RL-1, RL-3
    ASSERT_TRUE(is_here(forward ? input_edge : output_edge, running_));
    if (forward) {
      ASSERT_TRUE(free.outputs);
      ASSERT_LT(forwarded_ - retired_, max_in_flight_);  // RL-2
      const bool backward_ready =
          forwarded_ > retired_ && order_[retired_] < forwarded_ && is_here(output_edge, order_[retired_]);
      ASSERT_FALSE(backward_ready && free.gradients);  // RL-3
    }
    if (kind_ != Kind::forward) {
      ASSERT_TRUE(free.gradients);
      ASSERT_EQ(pass_, Pass::train);
      ASSERT_TRUE(trained_);
    }
  }
  void finish() {
    const auto retired = lane_.finished();
    if (kind_ == Kind::mark) {
      ASSERT_FALSE(retired);
      ++marks_;
      return;
    }
    if (kind_ != Kind::backward) ++forwarded_;
    const bool kept = kind_ == Kind::forward && awaits_ && pass_ == Pass::train;
    ASSERT_EQ(retired != nullptr, !kept);
    if (kept) {
      send(output_edge, running_);
      return;
    }
    ASSERT_EQ(retired->index, order_[retired_]);
    ++retired_;
  }

  Generator random_;
  bool awaits_;
  bool trained_;
  std::int64_t max_in_flight_;
  std::uint32_t devices_;  // ranks of the replica
  ReplicaLane lane_;
  std::deque<Token> tokens_;
  std::deque<std::tuple<EdgeId, std::uint32_t, std::uint32_t>> arrivals_;  // edge, sequence, rank
  std::map<std::pair<EdgeId, std::uint32_t>, std::uint32_t> here_;         // on how many ranks
  std::vector<std::uint32_t> batches_before_mark_;
  std::vector<std::uint32_t> order_;  // in which micro-batches retire
  Kind kind_ = Kind::mark;
  Pass pass_ = Pass::train;
  std::uint32_t running_ = 0;
  std::uint32_t enqueued_ = 0;
  std::uint32_t forwarded_ = 0;
  std::uint32_t retired_ = 0;
  std::uint32_t batches_ = 0;
  std::uint64_t marks_ = 0;
};

TEST(ReplicaLane, every_random_schedule_keeps_the_order_and_ends) {  // RL-1, RL-2, RL-3, RL-4
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomLane lane(seed);
    lane.run();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace maestro
