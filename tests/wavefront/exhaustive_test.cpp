// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/schedule/exhaustive.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

/// Returns two lanes in sequence, forward only.
Workload two_machines(const std::vector<std::pair<double, double>>& times) {
  Workload workload;
  workload.sections = {{"teacher", false, 1, no_limit, {}}, {"student", false, 1, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 0}};
  for (std::size_t sample = 0; sample < times.size(); ++sample) {
    workload.tasks.push_back({0, static_cast<std::int64_t>(sample), times[sample].first, 0, {}});
    workload.tasks.push_back({1, static_cast<std::int64_t>(sample), times[sample].second, 0, {{0, 2 * sample}}});
  }
  return workload;
}

TEST(ShortestSchedule, of_two_lanes_in_a_row_is_johnsons) {
  // By Johnson's rule samples 1, 3, 2, 4, 0: the second lane begins at 1 and waits for 1 ms before each of the last
  // two.
  const auto result = shortest_schedule(two_machines({{5, 2}, {1, 6}, {9, 7}, {3, 8}, {10, 4}}), 1'000'000);
  EXPECT_TRUE(result.proven);
  EXPECT_DOUBLE_EQ(result.schedule.makespan_ms, 30);
}

TEST(ShortestSchedule, reports_a_search_that_was_cut_short) {
  const auto result = shortest_schedule(two_machines({{5, 2}, {1, 6}, {9, 7}, {3, 8}, {10, 4}}), 3);
  EXPECT_FALSE(result.proven);
}

TEST(ShortestSchedule, holds_outputs_back_until_there_is_a_slot) {
  // The second lane has 11 ms of work and never waits: it takes the sample without inputs, then at 3 ms the first
  // image. The second image could be ready at 4 ms, but finds no slot before 3 ms.
  Workload workload;
  workload.sections = {{"vision", false, 1, no_limit, {}}, {"llm", false, 1, no_limit, {}}};
  workload.edges = {{0, 1, 1, 1}};
  workload.tasks = {
      {0, 0, 2, 0, {}}, {1, 0, 4, 0, {{0, 0}}}, {0, 1, 2, 0, {}}, {1, 1, 4, 0, {{0, 2}}}, {1, 2, 3, 0, {}}};
  const auto result = shortest_schedule(workload, 1'000'000);
  ASSERT_TRUE(result.proven);
  EXPECT_DOUBLE_EQ(result.schedule.makespan_ms, 11);
  EXPECT_TRUE(check_schedule(workload, result.schedule).ok());
}

}  // namespace
}  // namespace maestro
