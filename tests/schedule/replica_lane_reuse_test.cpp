// SPDX-License-Identifier: Apache-2.0
// A lane keeps nothing of retired micro-batches: reused numbers find no trace of the first use.
#include <gtest/gtest.h>

#include "runtime/schedule/replica_lane.hpp"

namespace maestro {
namespace {

constexpr Channel input{EdgeId(0), Direction::forward};
constexpr Channel gradient_of_output{EdgeId(1), Direction::gradient};
constexpr BuffersFree all_free{true, true};

TEST(ReplicaLaneReuse, the_arrivals_of_a_micro_batch_are_forgotten_when_it_retires) {
  ReplicaLane lane({true, true, 1});
  MicroBatchPlan plan;
  plan.arrivals = {{input, 0, {}, {}}, {gradient_of_output, 0, {}, {}}};
  for (int time = 0; time < 2; ++time) {
    lane.enqueue(plan);
    EXPECT_FALSE(lane.next(all_free));
    lane.arrived(input, 0);
    ASSERT_TRUE(lane.next(all_free));
    EXPECT_FALSE(lane.finished());
    EXPECT_FALSE(lane.next(all_free)) << "its gradient is missing";
    lane.arrived(gradient_of_output, 0);
    ASSERT_TRUE(lane.next(all_free));
    EXPECT_TRUE(lane.finished());
    lane.enqueue(StepBoundary{});
    ASSERT_TRUE(lane.next(all_free));  // the count of backward passes restarts
    lane.finished();
  }
}

TEST(ReplicaLaneReuse, the_phases_of_a_step_are_closed_at_its_end_and_those_of_later_steps_stay_open) {
  ReplicaLane lane({});
  const auto planned = [](std::uint64_t step) {
    MicroBatchPlan plan;
    plan.step = StepId(step);
    plan.forward_phase = 1;
    return plan;
  };
  lane.open_phase(StepId(4), 0, 1);
  lane.open_phase(StepId(5), 0, 1);
  StepBoundary end;
  end.step = StepId(4);
  lane.enqueue(end);
  lane.enqueue(planned(5));
  lane.enqueue(planned(4));
  ASSERT_TRUE(lane.next(all_free));
  lane.finished();
  ASSERT_TRUE(lane.next(all_free)) << "its phase is open";
  lane.finished();
  EXPECT_FALSE(lane.next(all_free)) << "its phase ended with the step";
}

}  // namespace
}  // namespace maestro
