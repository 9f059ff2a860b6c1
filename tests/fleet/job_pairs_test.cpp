// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/job_pairs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "runtime/core/random.hpp"

namespace maestro {
namespace {

TEST(JobPairs, gain_the_difference_of_the_two_completions) {
  // By hand: 100 s and 60 s left. In turn: ends at 100 and 160. Together at 1.2: 72 and 72 + 40 = 112.
  EXPECT_NEAR(
      gain_s(
          {.busy_waiting = 0.6, .busy_running = 0.6, .left_of_waiting_s = 60, .left_of_running_s = 100, .wait_s = 100}),
      (100 + 160) - (72 + 112), 1e-9);
  EXPECT_NEAR(
      gain_s(
          {.busy_waiting = 0.6, .busy_running = 0.6, .left_of_waiting_s = 100, .left_of_running_s = 60, .wait_s = 60}),
      (60 + 160) - (72 + 112), 1e-9);
  EXPECT_LT(
      gain_s(
          {.busy_waiting = 0.9, .busy_running = 0.9, .left_of_waiting_s = 60, .left_of_running_s = 60, .wait_s = 60}),
      0);
  EXPECT_EQ(slow_down(0.3, 0.4), 1);
}

double best_by_trying(const std::vector<std::vector<double>>& gains, std::size_t row, std::set<std::size_t> taken) {
  if (row == gains.size()) return 0;
  double best = best_by_trying(gains, row + 1, taken);
  for (std::size_t column = 0; column < gains[row].size(); ++column) {
    if (gains[row][column] <= 0 || taken.contains(column)) continue;
    std::set<std::size_t> more = taken;
    more.insert(column);
    best = std::max(best, gains[row][column] + best_by_trying(gains, row + 1, more));
  }
  return best;
}

TEST(JobPairs, no_other_pairs_gain_more) {  // PJ-1, PJ-2
  Random random(12);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::vector<double>> gains(1 + random.below(5));
    const std::size_t running = random.below(5);
    for (auto& row : gains) {
      for (std::size_t column = 0; column < running; ++column) row.push_back(static_cast<double>(random.below(12)) - 4);
    }
    const auto pairs = best_pairs(gains);
    double sum = 0;
    std::set<std::size_t> taken;
    for (std::size_t row = 0; row < gains.size(); ++row) {
      if (!pairs[row]) continue;
      EXPECT_GT(gains[row][*pairs[row]], 0);
      EXPECT_TRUE(taken.insert(*pairs[row]).second);
      sum += gains[row][*pairs[row]];
    }
    EXPECT_NEAR(sum, best_by_trying(gains, 0, {}), 1e-9) << "trial " << trial;
  }
  EXPECT_TRUE(best_pairs({}).empty());
}

}  // namespace
}  // namespace maestro
