// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/replica_lane.hpp"

#include <gtest/gtest.h>

#include "tests/schedule/lane_batches.hpp"

namespace maestro {
namespace {

using Kind = ReplicaLane::Kind;

LaneOptions trained(std::int64_t max_in_flight, bool splits_passes = true) {
  return {true, splits_passes, max_in_flight};
}

TEST(ReplicaLane, forward_passes_run_in_token_order_whatever_arrives_first) {  // RL-1, RL-2
  ReplicaLane lane({});
  lane.enqueue(batch_of(0, false));
  lane.enqueue(batch_of(1, false));
  lane.arrived(input, 1);
  EXPECT_FALSE(lane.next(all_free));
  ASSERT_NE(lane.missing_arrival(), nullptr);
  EXPECT_EQ(lane.missing_arrival()->sequence, 0u);
  lane.arrived(input, 0);
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
    return missing == nullptr ? -1 : static_cast<int>(missing->rank.value());
  };
  lane.arrived(input, 0, LayoutRank(1));
  EXPECT_FALSE(lane.next(all_free));
  EXPECT_EQ(missing_rank(), 0);
  lane.arrived(input, 0, LayoutRank(0));
  ASSERT_EQ(lane.next(all_free)->kind, Kind::forward);
  EXPECT_FALSE(lane.finished());
  lane.arrived(gradient_of_output, 0, LayoutRank(0));
  EXPECT_FALSE(lane.next(all_free));
  EXPECT_EQ(missing_rank(), 1);
  lane.arrived(gradient_of_output, 0, LayoutRank(1));
  EXPECT_EQ(lane.next(all_free)->kind, Kind::backward);
  EXPECT_TRUE(lane.finished());
  EXPECT_TRUE(lane.idle());
}

TEST(ReplicaLane, a_pass_waits_for_the_buffers_it_writes_and_for_no_others) {  // RL-2
  ReplicaLane frozen({});
  frozen.enqueue(batch_of(0, false));
  frozen.arrived(input, 0);
  EXPECT_FALSE(frozen.next({false, true}));
  EXPECT_TRUE(frozen.next({true, false}));

  ReplicaLane last(trained(1, false));  // forward and backward together write both outputs
  last.enqueue(batch_of(0, false));
  last.arrived(input, 0);
  EXPECT_FALSE(last.next({true, false}));
  EXPECT_FALSE(last.next({false, true}));
  EXPECT_EQ(last.next(all_free)->kind, Kind::forward_backward);

  ReplicaLane split(trained(1));
  split.enqueue(batch_of(0, true));
  split.arrived(input, 0);
  ASSERT_EQ(split.next({true, false})->kind, Kind::forward);
  EXPECT_FALSE(split.finished());
  split.arrived(gradient_of_output, 0);
  EXPECT_FALSE(split.next({true, false}));
  EXPECT_EQ(split.next({false, true})->kind, Kind::backward);
}

TEST(ReplicaLane, forward_stops_at_max_in_flight_and_backward_goes_first) {  // RL-2, RL-3
  ReplicaLane lane(trained(2));
  for (std::uint32_t index = 0; index < 4; ++index) {
    lane.enqueue(batch_of(index, true));
    lane.arrived(input, index);
  }
  for (std::uint32_t index = 0; index < 2; ++index) {
    ASSERT_EQ(lane.next(all_free)->kind, Kind::forward);
    EXPECT_FALSE(lane.finished());
  }
  EXPECT_FALSE(lane.next(all_free));
  lane.arrived(gradient_of_output, 1);  // not the oldest
  EXPECT_FALSE(lane.next(all_free));
  lane.arrived(gradient_of_output, 0);
  auto work = lane.next(all_free);
  EXPECT_EQ(work->kind, Kind::backward);
  EXPECT_EQ(work->batch->index, 0u);
  EXPECT_EQ(lane.finished()->index, 0u);
  work = lane.next(all_free);  // a forward pass could run, too
  EXPECT_EQ(work->kind, Kind::backward);
  EXPECT_EQ(work->batch->index, 1u);
}

TEST(ReplicaLane, the_plan_says_what_goes_first_when_both_passes_could_run) {  // RL-3
  ReplicaLane lane(trained(3));
  for (std::uint32_t index = 0; index < 3; ++index) {
    MicroBatchPlan plan = batch_of(index, true);
    plan.backward_after = 2;
    lane.enqueue(plan);
    lane.arrived(input, index);
  }
  ASSERT_EQ(lane.next(all_free)->kind, Kind::forward);
  EXPECT_FALSE(lane.finished());
  lane.arrived(gradient_of_output, 0);
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
  early.arrived(input, 0);
  ASSERT_EQ(early.next(all_free)->kind, Kind::forward);
  EXPECT_FALSE(early.finished());
  early.arrived(gradient_of_output, 0);
  EXPECT_EQ(early.next(all_free)->kind, Kind::backward);  // the next forward pass lacks its input
}

TEST(ReplicaLane, a_lane_that_takes_turns_waits_for_what_the_plan_has_first) {  // RL-3
  ReplicaLane lane(trained(2));
  for (std::uint32_t index = 0; index < 3; ++index) {
    MicroBatchPlan plan = batch_of(index, true);
    plan.forward_turns = {{0, index == 2 ? 3 : index}};
    plan.backward_turns = {{0, index == 0 ? 2 : index + 3}};
    plan.backward_after = index == 0 ? 2 : 3;
    lane.enqueue(plan);
    if (index != 1) lane.arrived(input, index);
  }
  ASSERT_EQ(lane.next(all_free)->turns().front().place, 0u);
  EXPECT_FALSE(lane.finished());
  lane.arrived(gradient_of_output, 0);
  EXPECT_FALSE(lane.next(all_free)) << "the second forward pass comes first, and lacks its input";
  lane.arrived(input, 1);
  ASSERT_EQ(lane.next(all_free)->turns().front().place, 1u);
  EXPECT_FALSE(lane.finished());
  auto work = lane.next(all_free);
  EXPECT_EQ(work->kind, Kind::backward);
  EXPECT_EQ(work->turns().front().place, 2u);
  EXPECT_TRUE(lane.finished());
  EXPECT_EQ(lane.next(all_free)->turns().front().place, 3u);
  EXPECT_FALSE(lane.finished());
  EXPECT_FALSE(lane.next(all_free));
  EXPECT_EQ(lane.missing_arrival()->sequence, 1u);
}

TEST(ReplicaLane, backward_passes_follow_their_ranks_and_slots_retire_out_of_order) {  // RL-3
  ReplicaLane lane(trained(2));
  for (std::uint32_t index = 0; index < 2; ++index) {
    MicroBatchPlan plan = batch_of(index, true);
    plan.backward_order = 1 - index;
    lane.enqueue(plan);
    lane.arrived(input, index);
    ASSERT_EQ(lane.next(all_free)->kind, Kind::forward);
    EXPECT_FALSE(lane.finished());
  }
  lane.enqueue(end_of(1));
  lane.arrived(gradient_of_output, 0);
  EXPECT_FALSE(lane.next(all_free));
  lane.arrived(gradient_of_output, 1);
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
  lane.arrived(input, 0);
  lane.open_phase(StepId(3), 1, 5);  // another group
  EXPECT_FALSE(lane.next(all_free));
  lane.open_phase(StepId(3), 2, 1);
  ASSERT_EQ(lane.next(all_free)->kind, Kind::forward);
  EXPECT_FALSE(lane.finished());
  lane.arrived(gradient_of_output, 0);
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
  lane.arrived(input, 0);
  lane.open_phase(StepId(3), 0, 2);
  lane.open_phase(StepId(4), 0, 1);  // ahead of its step
  ASSERT_TRUE(lane.next(all_free));
  EXPECT_TRUE(lane.finished());
  ASSERT_EQ(lane.next(all_free)->kind, Kind::mark);
  EXPECT_FALSE(lane.finished());
  plan.step = StepId(4);
  plan.arrivals[0].sequence = 1;
  lane.enqueue(plan);
  lane.arrived(input, 1);
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
      lane.arrived(input, plan.index);
      lane.arrived(gradient_of_output, plan.index);
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
  lane.arrived(input, 0);
  EXPECT_EQ(lane.next(all_free)->kind, Kind::forward);
  EXPECT_EQ(lane.finished()->index, 0u);
  EXPECT_TRUE(lane.idle());
}

TEST(ReplicaLane, a_mark_waits_for_what_is_before_it_and_holds_what_is_behind_it) {  // RL-4
  ReplicaLane lane(trained(2));
  lane.enqueue(batch_of(0, true));
  lane.enqueue(end_of(7));
  lane.enqueue(batch_of(1, true));
  for (std::uint32_t index = 0; index < 2; ++index) lane.arrived(input, index);
  ASSERT_EQ(lane.next(all_free)->kind, Kind::forward);
  EXPECT_FALSE(lane.finished());
  EXPECT_FALSE(lane.next(all_free));
  lane.arrived(gradient_of_output, 0);
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
  lane.arrived(input, 0);
  lane.enqueue(batch_of(0, false));
  EXPECT_TRUE(lane.next(all_free));
}

TEST(ReplicaLane, who_waits_for_whom_is_the_oldest_micro_batch_that_misses_something) {
  ReplicaLane lane(trained(1));
  EXPECT_EQ(lane.waiting_batch(), nullptr);
  lane.enqueue(batch_of(0, true));
  EXPECT_FALSE(lane.missing_arrival()->channel.gradient());
  lane.arrived(input, 0);
  (void)lane.next(all_free);
  EXPECT_EQ(lane.waiting_batch(), nullptr);  // busy: it waits for no arrival
  (void)lane.finished();
  EXPECT_EQ(lane.waiting_batch()->index, 0u);
  EXPECT_TRUE(lane.missing_arrival()->channel.gradient());
  lane.enqueue(batch_of(1, true));
  lane.arrived(gradient_of_output, 0);
  EXPECT_EQ(lane.waiting_batch()->index, 1u);  // micro-batch 0 has everything it needs
}

}  // namespace
}  // namespace maestro
