// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/placement_balance.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

/// Returns the decision after a window of equal looks.
PlacementDecision window_of(PlacementBalance& balance, double waiting, double idle) {
  for (int look = 1; look < PlacementBalance::window; ++look)
    EXPECT_EQ(balance.look(waiting, idle), PlacementDecision::keep);
  return balance.look(waiting, idle);
}

TEST(PlacementBalance, decides_by_the_means_of_a_window) {  // EB-1, EB-2
  PlacementBalance balance;
  EXPECT_EQ(window_of(balance, 0.06, 0.2), PlacementDecision::one_more);
  EXPECT_EQ(window_of(balance, 0.05, 0.2), PlacementDecision::keep);
  EXPECT_EQ(window_of(balance, 0, 0.51), PlacementDecision::one_less);
  EXPECT_EQ(window_of(balance, 0, 0.5), PlacementDecision::keep);
  EXPECT_EQ(window_of(balance, 0.5, 0.9), PlacementDecision::keep) << "another process would be as idle";
  EXPECT_NEAR(balance.waiting(), 0.5, 1e-9);
  EXPECT_NEAR(balance.idle(), 0.9, 1e-9);
}

TEST(PlacementBalance, forgets_the_looks_before_a_move) {  // EB-1
  PlacementBalance balance;
  for (int look = 1; look < PlacementBalance::window; ++look) (void)balance.look(1, 0);
  balance.moved();
  EXPECT_EQ(window_of(balance, 0, 0.2), PlacementDecision::keep);
}

TEST(PlacementBalance, gives_back_later_where_that_was_wrong) {  // EB-3
  PlacementBalance balance;
  EXPECT_EQ(window_of(balance, 0, 0.9), PlacementDecision::one_less);
  EXPECT_EQ(window_of(balance, 0.2, 0.1), PlacementDecision::one_more);
  EXPECT_EQ(window_of(balance, 0, 0.9), PlacementDecision::keep);
  EXPECT_EQ(window_of(balance, 0, 0.9), PlacementDecision::one_less);
  EXPECT_EQ(window_of(balance, 0.2, 0.1), PlacementDecision::one_more);
  for (int times = 0; times < 3; ++times) EXPECT_EQ(window_of(balance, 0, 0.9), PlacementDecision::keep);
  EXPECT_EQ(window_of(balance, 0, 0.9), PlacementDecision::one_less);
  EXPECT_EQ(window_of(balance, 0, 0.9), PlacementDecision::keep) << "it was right to";
}

}  // namespace
}  // namespace maestro
