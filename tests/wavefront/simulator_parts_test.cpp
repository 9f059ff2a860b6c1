// SPDX-License-Identifier: Apache-2.0
// Each part of the simulator by itself (Admission: admission_test.cpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "runtime/core/random.hpp"
#include "runtime/wavefront/simulator/dispatch.hpp"
#include "tests/wavefront/simulated_workloads.hpp"

namespace maestro {
namespace {

using testing::ElementsAre;

TEST(EventQueue, ends_are_taken_by_time_and_none_before_its_time) {  // EV-1
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    EventQueue events(40, 0);
    std::vector<double> times;
    for (int lane = 0; lane < 40; ++lane) {
      times.push_back(static_cast<double>(1 + random.below(15)));
      events.add_end(times.back(), lane);
    }
    std::vector<double> taken;
    while (events.next_ms() != EventQueue::never) {
      const double next_ms = events.next_ms();
      EXPECT_EQ(events.take_end(), -1) << "before its time";
      events.advance_to(next_ms);
      for (int lane = events.take_end(); lane >= 0; lane = events.take_end()) {
        EXPECT_LE(times[lane], events.now_ms());
        taken.push_back(times[lane]);
      }
    }
    std::sort(times.begin(), times.end());
    EXPECT_EQ(taken, times) << "seed " << seed;
  }
}

TEST(EventQueue, a_channel_delivers_its_transfers_in_the_order_in_which_they_were_sent) {  // EV-1
  EventQueue events(1, 2);
  events.advance_to(0.5);
  events.send(1, 3, 7);
  events.send(1, 3, 5);
  events.send(0, 4, 9);
  events.add_end(10, 0);
  EXPECT_EQ(events.take_arrival(1), -1);
  EXPECT_EQ(events.next_ms(), 3);
  events.advance_to(3);
  EXPECT_EQ(events.take_arrival(0), -1);
  EXPECT_EQ(events.take_arrival(1), 7);
  EXPECT_EQ(events.take_arrival(1), 5);
  EXPECT_EQ(events.take_arrival(1), -1);
  EXPECT_EQ(events.next_ms(), 4);
  events.reset();
  EXPECT_EQ(events.next_ms(), EventQueue::never);
  EXPECT_EQ(events.now_ms(), 0);
}

TEST(PrioritySet, finds_the_next_member_as_a_sorted_set_does) {
  for (const int universe : {1, 64, 65, 5000}) {
    Random random(static_cast<std::uint64_t>(universe));
    PrioritySet set(static_cast<std::size_t>(universe));
    std::set<int> model;
    for (int turn = 0; turn < 2000; ++turn) {
      const int number = static_cast<int>(random.below(static_cast<std::uint64_t>(universe)));
      if (model.erase(number) > 0) {
        set.erase(number);
      } else {
        model.insert(number);
        set.insert(number);
      }
      const int from = static_cast<int>(random.below(static_cast<std::uint64_t>(universe) + 1));
      const auto next = model.lower_bound(from);
      ASSERT_EQ(set.next(from), next == model.end() ? -1 : *next) << "universe " << universe << ", from " << from;
      ASSERT_EQ(set.empty(), model.empty());
    }
    set.clear();
    EXPECT_EQ(set.next(0), -1);
  }
}

/// Returns a section with 70 lanes that follows a section with three.
PlanningGraph wide_graph() {
  Workload workload;
  workload.sections = {{"vision", true, 3, 2, {}}, {"llm", true, 70, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0}};
  for (std::size_t n = 0; n < 4; ++n) {
    workload.tasks.push_back({0, static_cast<std::int64_t>(n), 1, 2, {}});
    workload.tasks.push_back({1, static_cast<std::int64_t>(n), 1, 2, {{0, 2 * n}}});
  }
  return PlanningGraph(workload, Binding::late);
}

TEST(LaneMasks, candidates_are_idle_and_have_a_gradient_or_room) {
  const PlanningGraph graph = wide_graph();
  LaneMasks masks(graph.sections);
  masks.reset();
  EXPECT_EQ(masks.candidates(0, 0, true), 0b111u);
  EXPECT_EQ(masks.candidates(0, 0, false), 0u);
  EXPECT_EQ(masks.candidates(1, 0, true), ~std::uint64_t{0});
  EXPECT_EQ(masks.candidates(1, 1, true), 0b111111u) << "lanes 64 to 69 of the section";
  masks.set_room(1, false);
  EXPECT_EQ(masks.candidates(0, 0, true), 0b101u);
  masks.set_gradient(1, true);
  EXPECT_EQ(masks.candidates(0, 0, true), 0b111u);
  EXPECT_EQ(masks.candidates(0, 0, false), 0b010u);
  masks.set_idle(1, false);
  EXPECT_EQ(masks.candidates(0, 0, false), 0u);
  masks.set_idle(3 + 65, false);
  EXPECT_EQ(masks.candidates(1, 1, true), 0b111101u);
}

TEST(Lanes, gradients_are_taken_the_oldest_first_or_by_rank) {
  const PlanningGraph graph = wide_graph();
  const EventQueue events(graph.lanes.size(), 2);
  Lanes lanes(graph, events);
  lanes.reset();
  for (const int task : {4, 0, 2, 6}) lanes.add_gradient(1, task);
  EXPECT_EQ(lanes.backlog_ms(1), 4 * 2);
  EXPECT_EQ(lanes.take_gradient(1), 4);
  EXPECT_EQ(lanes.take_gradient(1, [](int task) { return -task; }), 6);
  lanes.add_gradient(1, 4);
  EXPECT_EQ(lanes.take_gradient(1, [](int task) { return task; }), 0);
  EXPECT_EQ(lanes.take_gradient(1), 2);
  EXPECT_EQ(lanes.take_gradient(1), 4);
  EXPECT_FALSE(lanes.has_gradient(1));
  EXPECT_EQ(lanes.backlog_ms(1), 0);
}

TEST(Lanes, have_room_below_their_in_flight_limit) {
  const PlanningGraph graph = wide_graph();
  const EventQueue events(graph.lanes.size(), 2);
  Lanes lanes(graph, events);
  lanes.reset();
  lanes.enter_flight(0);
  EXPECT_TRUE(lanes.has_room(0));
  lanes.enter_flight(0);
  EXPECT_FALSE(lanes.has_room(0));
  EXPECT_EQ(lanes.masks().candidates(0, 0, true), 0b110u);
  lanes.leave_flight(0);
  EXPECT_TRUE(lanes.has_room(0));
  EXPECT_EQ(lanes.masks().candidates(0, 0, true), 0b111u);
}

struct DispatchBench {
  explicit DispatchBench(const Workload& workload, Binding binding = Binding::late)
      : graph(workload, binding),
        events(graph.lanes.size(), 2 * graph.edges.size()),
        lanes(graph, events),
        admission(graph, lanes),
        dispatch(graph, lanes, admission) {}

  void reset(DispatchRules new_rules) {
    rules = std::move(new_rules);
    lanes.reset();
    admission.reset(rules);
    dispatch.reset(rules);
  }

  DispatchRules rules;
  const PlanningGraph graph;
  EventQueue events;
  Lanes lanes;
  Admission admission;
  Dispatch dispatch;
};

TEST(Dispatch, picks_the_most_urgent_task_that_is_ready) {  // DI-1
  DispatchBench bench(flow_shop({{3, 1}, {2, 1}, {4, 1}}));
  bench.reset(list_rules(bench.graph, {4, 0, 2, 1, 5, 3}));
  EXPECT_EQ(bench.dispatch.pick(0).task, 4);
  bench.dispatch.start(0, 4);
  EXPECT_EQ(bench.dispatch.pick(0).task, 0);
  EXPECT_FALSE(bench.dispatch.has_ready(1));
  EXPECT_TRUE(bench.dispatch.pick(1).section_waits);
  EXPECT_TRUE(bench.dispatch.add_input(5));
  EXPECT_EQ(bench.dispatch.pick(1).task, 5) << "the input of the more urgent task is not there";
  EXPECT_TRUE(bench.dispatch.add_input(1));
  EXPECT_EQ(bench.dispatch.pick(1).task, 1);
}

TEST(Dispatch, a_withdrawn_task_is_ready_again) {  // DI-1
  DispatchBench bench(flow_shop({{3, 1}, {2, 1}}));
  bench.reset(list_rules(bench.graph, {2, 0, 1, 3}));
  bench.dispatch.start(0, 2);
  bench.dispatch.withdraw(2);
  EXPECT_EQ(bench.dispatch.pick(0).task, 2);
}

TEST(Dispatch, a_withdrawn_task_has_neither_taken_its_input_nor_made_its_output) {
  DispatchBench bench(flow_shop({{3, 1}, {2, 1}}));
  DispatchRules rules = list_rules(bench.graph, {0, 2, 1, 3});
  rules.theta = {1, 1};
  bench.reset(rules);
  bench.dispatch.start(0, 0);
  EXPECT_FALSE(bench.dispatch.prefers_forward(0)) << "an output is ahead of the only consumer lane";
  bench.dispatch.add_input(1);
  bench.dispatch.start(1, 1);
  EXPECT_TRUE(bench.dispatch.prefers_forward(0));
  bench.dispatch.withdraw(1);
  EXPECT_FALSE(bench.dispatch.prefers_forward(0)) << "the output waits again";
  bench.dispatch.withdraw(0);
  EXPECT_TRUE(bench.dispatch.prefers_forward(0));
}

TEST(Dispatch, passes_over_a_task_that_its_lane_may_not_take_for_the_next_most_urgent_of_any_class) {  // DI-1
  // One slot on each of two lanes; the first two tasks of the llm have inputs, the third has none.
  Workload workload;
  workload.sections = {{"vision", true, 1, no_limit, {}}, {"llm", true, 2, no_limit, {}}};
  workload.edges = {{0, 1, 1, 0}};
  workload.tasks = {{0, 0, 1, 2, {}},       {0, 1, 1, 2, {}},       {0, 2, 1, 2, {}}, {1, 0, 9, 0, {{0, 0}}},
                    {1, 1, 4, 0, {{0, 1}}}, {1, 2, 1, 0, {{0, 2}}}, {1, 3, 1, 0, {}}};
  DispatchBench bench(workload, Binding::early);
  bench.reset(list_rules(bench.graph, {0, 1, 2, 3, 6, 4, 5}));
  for (const int task : {0, 1}) {
    ASSERT_TRUE(bench.admission.admit(task));
    bench.admission.input_made({0, 3 + task}, task);
    bench.dispatch.add_input(3 + task);
  }
  ASSERT_FALSE(bench.admission.may_take(2, 3)) << "the slot of the lane is reserved for the other task";
  ASSERT_TRUE(bench.admission.may_take(2, 4));
  EXPECT_EQ(bench.dispatch.pick(2).task, 6) << "more urgent than the task that may be taken";
}

TEST(Dispatch, an_order_waits_for_its_next_task) {  // DI-2
  DispatchBench bench(flow_shop({{3, 1}, {2, 1}}));
  DispatchRules rules = list_rules(bench.graph, {0, 2, 3, 1});
  rules.discipline = DispatchRules::Discipline::section_order;
  bench.reset(rules);
  EXPECT_TRUE(bench.dispatch.add_input(1));
  EXPECT_EQ(bench.dispatch.pick(1).task, -1) << "the order has the other task first";
  EXPECT_TRUE(bench.dispatch.add_input(3));
  EXPECT_EQ(bench.dispatch.pick(1).task, 3);
}

TEST(Dispatch, with_hungry_producers_first_takes_the_input_of_the_lane_that_runs_out_first) {  // DI-1
  Workload workload;
  workload.sections = {{"vision", true, 2, 2, {}}, {"llm", true, 1, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0}};
  workload.tasks = {{0, 0, 1, 2, {}}, {0, 1, 1, 2, {}}, {1, 0, 1, 2, {{0, 0}}}, {1, 1, 1, 2, {{0, 1}}}};
  DispatchBench bench(workload);
  DispatchRules rules = list_rules(bench.graph, {0, 1, 2, 3});
  for (const bool hungry : {false, true}) {
    rules.hungry_producers_first = hungry;
    bench.reset(rules);
    for (const int lane : {0, 1}) {
      bench.admission.take_inputs(lane, lane, 0);
      bench.dispatch.start(lane, lane);
      bench.lanes.enter_flight(lane);
      bench.dispatch.add_input(2 + lane);
    }
    bench.lanes.enter_flight(1);  // the encoder's second lane has reached its limit
    EXPECT_EQ(bench.dispatch.pick(2).task, hungry ? 3 : 2);
  }
}

TEST(Dispatch, theta_is_the_share_of_consumer_lanes_below_which_forward_passes_go_first) {
  DispatchBench bench(flow_shop({{3, 1}, {2, 1}, {4, 1}}));
  DispatchRules rules = list_rules(bench.graph, {0, 2, 4, 1, 3, 5});
  rules.theta = {2, 1};
  bench.reset(rules);
  EXPECT_FALSE(bench.dispatch.prefers_forward(1)) << "it feeds no section";
  for (const int task : {0, 2}) {
    EXPECT_TRUE(bench.dispatch.prefers_forward(0));
    bench.dispatch.start(0, task);
  }
  EXPECT_FALSE(bench.dispatch.prefers_forward(0)) << "two outputs are ahead of one consumer lane";
  bench.dispatch.start(1, 1);
  EXPECT_TRUE(bench.dispatch.prefers_forward(0));
}

TEST(PlanningGraph, the_consumer_lanes_of_a_section_are_those_of_all_sections_that_it_feeds) {
  Workload workload;
  workload.sections = {
      {"vision", true, 1, no_limit, {}}, {"llm", true, 3, no_limit, {}}, {"audio", true, 2, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0}, {0, 2, no_limit, 0}};
  const PlanningGraph graph(workload, Binding::late);
  EXPECT_EQ(graph.sections[0].consumer_lanes, 3 + 2);
  EXPECT_EQ(graph.sections[1].consumer_lanes, 0);
}

TEST(Dispatch, sections_start_passes_in_the_order_of_the_devices) {
  Workload workload;
  workload.sections = {
      {"teacher", false, 1, no_limit, {}}, {"vision", true, 1, no_limit, {}}, {"llm", true, 1, no_limit, {}}};
  DispatchBench bench(workload);
  DispatchRules rules = list_rules(bench.graph, {});
  using DeviceOrder = DispatchRules::DeviceOrder;
  const auto order = [&](DeviceOrder device_order) {
    rules.device_order = device_order;
    bench.reset(rules);
    const auto sections = bench.dispatch.section_order();
    return std::vector<int>(sections.begin(), sections.end());
  };
  EXPECT_THAT(order(DeviceOrder::trained_behind), ElementsAre(2, 1, 0));
  EXPECT_THAT(order(DeviceOrder::trained_ahead), ElementsAre(1, 2, 0));
  EXPECT_THAT(order(DeviceOrder::ahead), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace maestro
