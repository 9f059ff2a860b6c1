// SPDX-License-Identifier: Apache-2.0
// AD-1 .. AD-3 of runtime/wavefront/simulator/admission.hpp.
#include "runtime/wavefront/simulator/admission.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

struct AdmissionBench {
  AdmissionBench(Workload workload, Binding binding)
      : graph(workload, binding),
        events(graph.lanes.size(), 2 * graph.edges.size()),
        lanes(graph, events),
        admission(graph, lanes) {
    rules.theta.assign(graph.sections.size(), 0.5);
    admission.reset(rules);
  }

  DispatchRules rules;
  const PlanningGraph graph;
  EventQueue events;
  Lanes lanes;
  Admission admission;
};

/// Returns an encoder that feeds an llm with two lanes of `slots` slots each; `llm_ms` has the llm's forward time by
/// task. Encoder task n is n and feeds the llm task count + n.
Workload encoder_and_llm(const std::vector<double>& llm_ms, std::int64_t slots) {
  Workload workload;
  workload.sections = {{"vision", true, 1, no_limit, {}}, {"llm", true, 2, no_limit, {}}};
  workload.edges = {{0, 1, slots, 0}};
  for (std::size_t n = 0; n < llm_ms.size(); ++n) {
    workload.tasks.push_back({0, static_cast<std::int64_t>(n), 1, 2, {}});
  }
  for (std::size_t n = 0; n < llm_ms.size(); ++n) {
    workload.tasks.push_back({1, static_cast<std::int64_t>(n), llm_ms[n], 0, {{0, n}}});
  }
  return workload;
}

/// Returns vision and audio that feed an llm with a single lane, with one slot on each edge. Two samples read the first
/// image, which leaves no slot for the second sample.
Workload shared_picture() {
  Workload workload;
  workload.sections = {
      {"vision", true, 1, no_limit, {}}, {"audio", true, 1, no_limit, {}}, {"llm", true, 1, no_limit, {}}};
  workload.edges = {{0, 2, 1, 0}, {1, 2, 1, 0}};
  workload.tasks = {{0, 0, 1, 2, {}},
                    {1, 0, 1, 2, {}},
                    {1, 1, 1, 2, {}},
                    {2, 0, 5, 9, {{0, 0}, {1, 1}}},
                    {2, 1, 5, 9, {{0, 0}, {1, 2}}}};
  return workload;
}

TEST(Admission, an_admission_that_fails_half_way_returns_all_promises) {  // AD-1
  AdmissionBench bench(shared_picture(), Binding::late);
  ASSERT_FALSE(bench.graph.tasks[3].early);
  EXPECT_FALSE(bench.admission.admit(0));  // the first consumer finds both slots, the second finds none
  EXPECT_FALSE(bench.admission.admitted(0));
  EXPECT_EQ(bench.admission.ledger(0).held(), 0);
  EXPECT_EQ(bench.admission.ledger(1).held(), 0);
  EXPECT_EQ(bench.admission.ledger(0).spare(), 1);
  EXPECT_EQ(bench.admission.ledger(1).spare(), 1);
  EXPECT_TRUE(bench.admission.admit(1)) << "the sound of the first sample finds the slots that it needs";
}

TEST(Admission, an_admission_that_fails_half_way_leaves_no_task_on_a_lane) {  // AD-1
  Workload workload = encoder_and_llm({5, 6, 7}, 1);
  for (std::size_t n = 3; n < 6; ++n) workload.tasks[n].inputs = {{0, 0}};  // one image for three samples
  AdmissionBench bench(workload, Binding::early);
  EXPECT_FALSE(bench.admission.admit(0));
  EXPECT_EQ(bench.admission.ledger(0).spare(), 2);
  for (const int lane : {1, 2}) EXPECT_EQ(bench.admission.bound_work_ms(lane), 0) << lane;
  for (const int task : {3, 4, 5}) EXPECT_EQ(bench.admission.lane_of(task), -1) << task;
}

TEST(Admission, takes_the_promised_slots_of_all_consumers) {  // AD-1
  AdmissionBench bench(shared_picture(), Binding::late);
  ASSERT_TRUE(bench.admission.admit(1));
  EXPECT_TRUE(bench.admission.admitted(1));
  EXPECT_EQ(bench.admission.ledger(0).spare(), 0) << "the image of the same sample has its slot already";
  EXPECT_EQ(bench.admission.ledger(1).spare(), 0);
  EXPECT_FALSE(bench.admission.may_start(2));
}

TEST(Admission, outputs_wait_up_to_the_depth_of_their_edge_beside_a_filled_slot) {
  AdmissionBench bench(encoder_and_llm({9, 4, 3, 1, 1}, 2), Binding::late);
  for (const int depth : {0, 1}) {
    bench.rules.depth = {static_cast<double>(depth)};
    bench.admission.reset(bench.rules);
    const int most = depth * 2 + 2 - 1;  // depth * lanes + slots - 1
    for (int task = 0; task < most; ++task) EXPECT_TRUE(bench.admission.admit(task)) << depth << ", " << task;
    EXPECT_FALSE(bench.admission.admit(most)) << depth;
    EXPECT_GT(bench.admission.ledger(0).spare(), 0);
  }
}

TEST(Admission, a_consumer_is_bound_to_the_lane_with_the_least_bound_work) {  // AD-2
  AdmissionBench bench(encoder_and_llm({9, 4, 3, 1, 1}, 2), Binding::early);
  ASSERT_TRUE(bench.admission.admit(0));
  EXPECT_EQ(bench.admission.lane_of(5), 1);
  ASSERT_TRUE(bench.admission.admit(1));
  EXPECT_EQ(bench.admission.lane_of(6), 2);
  ASSERT_TRUE(bench.admission.admit(2));
  EXPECT_EQ(bench.admission.lane_of(7), 2) << "4 are fewer than 9";
  EXPECT_EQ(bench.admission.bound_work_ms(1), 9);
  EXPECT_EQ(bench.admission.bound_work_ms(2), 4 + 3);
  ASSERT_TRUE(bench.admission.admit(3));
  EXPECT_EQ(bench.admission.lane_of(8), 1) << "the other lane has no slot left";
}

TEST(Admission, a_pass_that_runs_counts_as_work_ahead_of_its_lane) {  // AD-2
  AdmissionBench bench(encoder_and_llm({9, 4, 3}, 2), Binding::early);
  bench.lanes.begin_pass(1, {.task = 3, .start_ms = 0, .end_ms = 20});
  ASSERT_TRUE(bench.admission.admit(0));
  EXPECT_EQ(bench.admission.lane_of(3), 2);
}

TEST(Admission, reserved_slots_stay_with_their_task_until_it_starts) {  // AD-3
  AdmissionBench bench(encoder_and_llm({9, 4, 3}, 1), Binding::early);
  ASSERT_TRUE(bench.admission.admit(0));
  ASSERT_TRUE(bench.admission.admit(1));
  EXPECT_FALSE(bench.admission.may_start(2)) << "both slots are reserved";
  bench.admission.input_made({0, 3}, 1);
  bench.admission.input_made({0, 4}, 2);
  EXPECT_TRUE(bench.admission.may_take(1, 3));
  EXPECT_FALSE(bench.admission.may_take(2, 3)) << "that lane's only slot is reserved for another task";
  EXPECT_FALSE(bench.admission.take_slots_freed());
  ASSERT_TRUE(bench.admission.admit(3));  // feeds no section
  bench.admission.take_inputs(1, 3, 2);
  EXPECT_TRUE(bench.admission.take_slots_freed());
  EXPECT_EQ(bench.admission.bound_work_ms(1), 0);
  EXPECT_TRUE(bench.admission.admit(2));
  EXPECT_EQ(bench.admission.lane_of(5), 1);
}

TEST(Admission, an_early_task_moves_to_a_lane_that_has_slots_of_its_own) {
  AdmissionBench bench(encoder_and_llm({9, 4, 3}, 1), Binding::early);
  ASSERT_TRUE(bench.admission.admit(0));
  bench.admission.input_made({0, 3}, 1);
  ASSERT_TRUE(bench.admission.may_take(2, 3));
  ASSERT_TRUE(bench.admission.admit(3));  // feeds no section
  bench.admission.take_inputs(2, 3, 1);
  EXPECT_EQ(bench.admission.lane_of(3), 2);
  EXPECT_EQ(bench.admission.ledger(0).spare(), 2);
  bench.admission.reset(bench.rules);
  EXPECT_FALSE(bench.admission.take_slots_freed()) << "of the simulation before";
  EXPECT_EQ(bench.admission.lane_of(3), -1);
}

}  // namespace
}  // namespace maestro
