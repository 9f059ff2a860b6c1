// SPDX-License-Identifier: Apache-2.0
// Values of the bounds' parts: a bound that is too low is legal, so plans do not reveal it.
#include "runtime/wavefront/stage_bound.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/wavefront/task_graph.hpp"

namespace maestro {
namespace {

using testing::ElementsAre;

StagedWork staged(const std::vector<StagedJob>& jobs) {
  StagedWork work;
  work.other_head = 3;
  work.lag = 1;
  work.jobs = jobs;
  return work;
}

TEST(StageBound, the_most_idle_time_is_before_the_first_job_or_at_the_end_of_a_later_one) {
  // By most body for the least neighbour work: (2, 8) until 6, then (4, 4) until 10, then (9, 1) until 19.
  const IdleTime last = idle_before(staged({{0, 4, 4}, {1, 9, 1}, {2, 2, 8}}), 1);
  EXPECT_DOUBLE_EQ(last.until_ms, 4 + 2 + 4 + 9);
  EXPECT_DOUBLE_EQ(last.machine_ms, 19 - 13);
  const IdleTime first = idle_before(staged({{0, 4, 4}, {1, 2, 8}}), 1);
  EXPECT_DOUBLE_EQ(first.until_ms, 4);
  EXPECT_DOUBLE_EQ(first.machine_ms, 4);
  EXPECT_DOUBLE_EQ(idle_before(staged({{0, 4, 4}, {1, 2, 8}}), 3).machine_ms, 3 * 10 - 12);
  const IdleTime cut = idle_before(staged({{0, 4, 4}, {1, 2, 8}}), 3, 8);  // half of the second job
  EXPECT_DOUBLE_EQ(cut.until_ms, 8);
  EXPECT_DOUBLE_EQ(cut.machine_ms, 3 * 8 - 10);
  EXPECT_DOUBLE_EQ(idle_before(staged({{0, 4, 4}}), 3, 2).machine_ms, 3 * 2);
}

TEST(StageBound, the_earliest_starts_are_those_of_the_shortest_neighbour_work) {
  StagedWork work = staged({{0, 4, 4}, {1, 9, 1}, {2, 2, 8}});
  EXPECT_THAT(earliest_start_sums(work, {}, 2), ElementsAre(0, 6, 6 + 10));
  EXPECT_THAT(earliest_start_sums(work, {5}, 2), ElementsAre(0, 5, 5 + 6)) << "a free job starts at its head";
  work.other_machines = 2;
  EXPECT_THAT(earliest_start_sums(work, {}, 3), ElementsAre(0, 6, 6 + 8, 6 + 8 + 15));
  work.separate = false;  // shared neighbour work is limited only by capacity
  EXPECT_THAT(earliest_start_sums(work, {}, 2), ElementsAre(0, 5, 5 + 7));
}

TEST(StageBound, weighted_starts_follow_smiths_ratio) {
  StagedWork work = staged({{0, 4, 4}, {1, 2, 8}});
  EXPECT_DOUBLE_EQ(weighted_start_sum(work), 8 * (4 + 2) + 4 * (4 + 6));
  work.other_machines = 2;
  EXPECT_DOUBLE_EQ(weighted_start_sum(work), 8 * (4 + 1 + 0.5) + 4 * (4 + 3 + 1));
  work.separate = false;
  EXPECT_DOUBLE_EQ(weighted_start_sum(work), 8 * (4 + 1) + 4 * (4 + 3));
}

TEST(PassPaths, are_the_shortest_times_around_each_pass) {
  // vision (trained) -> llm (trained), and vision -> probe, which is not trained and returns nothing.
  Workload workload;
  workload.sections = {
      {"vision", true, 1, no_limit, {}}, {"llm", true, 1, no_limit, {}}, {"probe", false, 1, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 2}, {0, 2, no_limit, 3}};
  workload.tasks = {{0, 0, 5, 7, {}}, {1, 0, 11, 13, {{0, 0}}}, {2, 0, 40, 0, {{1, 0}}}};
  const std::vector<PassPaths> paths = pass_paths(workload, consumers_of(workload));
  EXPECT_DOUBLE_EQ(paths[0].forward_head, 0);
  EXPECT_DOUBLE_EQ(paths[0].forward_tail, 3 + 40 + 7);  // the gradient waits for the probe, without a transfer
  EXPECT_DOUBLE_EQ(paths[0].backward_head, 5 + 3 + 40);
  EXPECT_DOUBLE_EQ(paths[0].backward_tail, 0);
  EXPECT_DOUBLE_EQ(paths[1].forward_head, 5 + 2);
  EXPECT_DOUBLE_EQ(paths[1].forward_tail, 13 + 2 + 7);
  EXPECT_DOUBLE_EQ(paths[1].backward_head, 5 + 2 + 11);
  EXPECT_DOUBLE_EQ(paths[1].backward_tail, 2 + 7);
  EXPECT_DOUBLE_EQ(paths[2].forward_head, 5 + 3);
  EXPECT_DOUBLE_EQ(paths[2].forward_tail, 7);
}

}  // namespace
}  // namespace maestro
