// SPDX-License-Identifier: Apache-2.0
// Each order of the portfolio by itself: a plan cannot reveal a broken order, since another makes up for it.
#include "runtime/wavefront/portfolio.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "benchmarks/schedule/workload_generator.hpp"
#include "runtime/wavefront/lower_bound.hpp"
#include "tests/wavefront/simulated_workloads.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;

std::vector<std::vector<int>> orders_of(const Workload& workload) {
  return anchor_orders(Anchors(workload, PlanningGraph(workload, Binding::late)));
}

/// Returns an llm with one lane that follows an encoder with four: the encoder has more work, the llm more per lane.
Workload wide_encoder() {
  Workload workload;
  workload.sections = {{"vision", true, 4, 2, {}}, {"llm", true, 1, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0.5}};
  for (std::size_t n = 0; n < 4; ++n) {
    workload.tasks.push_back({0, static_cast<std::int64_t>(n), 8, 16, {}});
    workload.tasks.push_back({1, static_cast<std::int64_t>(n), 5, 10, {{0, 2 * n}}});
  }
  workload.tasks.push_back({1, 4, 5, 10, {}});
  return workload;
}

TEST(Anchors, the_critical_section_has_the_most_work_per_lane) {
  const Workload workload = wide_encoder();
  const PlanningGraph graph(workload, Binding::late);
  ASSERT_GT(graph.sections[0].work_ms, graph.sections[1].work_ms);
  const Anchors anchors(workload, graph);
  EXPECT_EQ(anchors.section, 1);
  EXPECT_EQ(anchors.lanes, 1);
  EXPECT_EQ(anchors.list.size(), 5u);
  EXPECT_EQ(anchors.upstream_in_flight, 4 * 2);
}

TEST(Anchors, of_sections_with_equal_work_per_lane_the_last_is_critical) {
  const Workload workload = flow_shop({{3, 2}, {1, 2}});
  EXPECT_EQ(Anchors(workload, PlanningGraph(workload, Binding::late)).section, 1);
}

TEST(Anchors, carry_the_times_around_their_tasks) {
  const Workload workload = wide_encoder();
  const Anchors anchors(workload, PlanningGraph(workload, Binding::late));
  const Anchors::Anchor& fed = anchors.list[0];
  EXPECT_EQ(fed.task, 1);
  EXPECT_DOUBLE_EQ(fed.head_ms, 8 + 0.5);
  EXPECT_DOUBLE_EQ(fed.body_ms, 15);
  EXPECT_DOUBLE_EQ(fed.tail_ms, 10 + 0.5 + 16);
  EXPECT_DOUBLE_EQ(fed.upstream_ms, 24);
  EXPECT_DOUBLE_EQ(fed.downstream_ms, 0);
  EXPECT_TRUE(fed.pressing);
  const Anchors::Anchor& free = anchors.list[4];
  EXPECT_DOUBLE_EQ(free.head_ms, 0);
  EXPECT_DOUBLE_EQ(free.upstream_ms, 0);
  EXPECT_FALSE(free.pressing);
}

TEST(AnchorOrders, hold_johnsons_order_of_the_critical_section_and_the_section_before_it) {
  // Rising by the first stage while it is shorter than the second; then falling by the second.
  EXPECT_THAT(orders_of(flow_shop({{9, 7}, {3, 8}, {5, 2}, {1, 6}, {10, 4}, {2, 9}})),
              Contains(ElementsAre(3, 5, 1, 0, 4, 2)));
}

TEST(AnchorOrders, hold_johnsons_order_of_the_critical_section_and_the_section_behind_it) {
  EXPECT_THAT(orders_of(flow_shop({{9, 7}, {3, 8}, {15, 2}, {1, 6}, {20, 4}, {2, 9}})),
              Contains(ElementsAre(3, 5, 1, 0, 4, 2)));
}

TEST(AnchorOrders, rise_to_the_longest_and_fall_again) {
  EXPECT_THAT(orders_of(flow_shop({{2, 9}, {2, 3}, {2, 5}, {2, 8}, {2, 4}, {2, 7}, {2, 6}, {2, 10}})),
              AllOf(Contains(ElementsAre(1, 2, 5, 0, 7, 3, 6, 4)),    // every second on the way up
                    Contains(ElementsAre(1, 5, 7, 0, 3, 6, 2, 4))));  // every fourth
}

TEST(AnchorOrders, are_permutations) {
  for (const WorkloadKind kind : workload_kinds()) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const GeneratedWorkload generated = generate_tiny_workload(kind, seed, 30);
      for (std::vector<int> order : orders_of(generated.workload)) {
        std::sort(order.begin(), order.end());
        for (std::size_t n = 0; n < order.size(); ++n) ASSERT_EQ(order[n], static_cast<int>(n)) << generated.name;
      }
    }
  }
}

/// Returns two encoder tasks and the llm tasks that read them, in sections with one lane.
Workload shared_pictures(const std::vector<std::size_t>& picture_of) {
  Workload workload;
  workload.sections = {{"vision", true, 1, no_limit, {}}, {"llm", true, 1, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0}};
  workload.tasks = {{0, 0, 1, 2, {}}, {0, 1, 1, 2, {}}};
  for (std::size_t n = 0; n < picture_of.size(); ++n) {
    workload.tasks.push_back({1, static_cast<std::int64_t>(n), 5, 10, {{0, picture_of[n]}}});
  }
  return workload;
}

TEST(SpreadOrder, a_shared_producer_stands_at_the_place_of_its_most_urgent_consumer) {
  for (const auto& [pictures, anchor_order] :
       {std::pair(std::vector<std::size_t>{0, 0, 1}, std::vector<int>{1, 2, 0}),
        std::pair(std::vector<std::size_t>{0, 0, 1}, std::vector<int>{0, 2, 1})}) {
    const Workload workload = shared_pictures(pictures);
    const PlanningGraph graph(workload, Binding::late);
    const std::vector<int> order = spread_order(graph, Anchors(workload, graph), anchor_order);
    EXPECT_EQ(std::vector<int>(order.begin(), order.begin() + 2), (std::vector<int>{0, 1}));
    for (std::size_t n = 0; n < 3; ++n) EXPECT_EQ(order[2 + n], 2 + anchor_order[n]);
  }
}

TEST(SpreadOrder, a_consumer_of_an_anchor_stands_at_the_place_of_the_anchor) {
  const Workload workload = flow_shop({{9, 1}, {8, 1}, {7, 1}});  // the first section is critical
  const PlanningGraph graph(workload, Binding::late);
  EXPECT_THAT(spread_order(graph, Anchors(workload, graph), {2, 0, 1}), ElementsAre(4, 0, 2, 5, 1, 3));
}

TEST(Portfolio, holds_a_schedule_near_the_lower_bound_without_any_search) {
  double sum = 0;
  int count = 0;
  for (const WorkloadKind kind : workload_kinds()) {
    for (std::uint64_t seed = 31; seed <= 34; ++seed) {
      const GeneratedWorkload generated = generate_workload(kind, seed);
      const PlanningGraph graph(generated.workload, Binding::late);
      const Anchors anchors(generated.workload, graph);
      Simulator simulator(graph);
      double best_ms = std::numeric_limits<double>::infinity();
      for (const std::vector<int>& order : anchor_orders(anchors)) {
        DispatchRules rules = list_rules(graph, spread_order(graph, anchors, order));
        rules.depth.assign(graph.edges.size(), 1.0);
        rules.hungry_producers_first = true;
        best_ms = std::min(best_ms, simulator.run(rules, best_ms));
      }
      const double ratio = best_ms / lower_bound_ms(generated.workload);
      RecordProperty(generated.name, std::to_string(ratio));
      EXPECT_LE(ratio, 1.1) << generated.name;
      sum += ratio;
      ++count;
    }
  }
  EXPECT_LE(sum / count, 1.02);
}

}  // namespace
}  // namespace maestro
