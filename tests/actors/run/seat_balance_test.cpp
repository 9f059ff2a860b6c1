// SPDX-License-Identifier: Apache-2.0
#include "actors/run/seat_balance.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

/// Returns the decision of a window of equal looks.
SeatDecision window_of(SeatBalance& balance, double waiting, double idle) {
  for (int look = 1; look < SeatBalance::window; ++look) EXPECT_EQ(balance.look(waiting, idle), SeatDecision::keep);
  return balance.look(waiting, idle);
}

TEST(SeatBalance, decides_by_the_means_of_a_window) {  // EB-1, EB-2
  SeatBalance balance;
  EXPECT_EQ(window_of(balance, 0.06, 0.2), SeatDecision::one_more);
  EXPECT_EQ(window_of(balance, 0.05, 0.2), SeatDecision::keep);
  EXPECT_EQ(window_of(balance, 0, 0.51), SeatDecision::one_less);
  EXPECT_EQ(window_of(balance, 0, 0.5), SeatDecision::keep);
  EXPECT_EQ(window_of(balance, 0.5, 0.9), SeatDecision::keep) << "another process would be as idle";
  EXPECT_NEAR(balance.waiting(), 0.5, 1e-9);
  EXPECT_NEAR(balance.idle(), 0.9, 1e-9);
}

TEST(SeatBalance, forgets_the_looks_before_a_move) {  // EB-1
  SeatBalance balance;
  for (int look = 1; look < SeatBalance::window; ++look) (void)balance.look(1, 0);
  balance.moved();
  EXPECT_EQ(window_of(balance, 0, 0.2), SeatDecision::keep);
}

TEST(SeatBalance, gives_back_later_where_that_was_wrong) {  // EB-3
  SeatBalance balance;
  EXPECT_EQ(window_of(balance, 0, 0.9), SeatDecision::one_less);
  EXPECT_EQ(window_of(balance, 0.2, 0.1), SeatDecision::one_more);
  EXPECT_EQ(window_of(balance, 0, 0.9), SeatDecision::keep);
  EXPECT_EQ(window_of(balance, 0, 0.9), SeatDecision::one_less);
  EXPECT_EQ(window_of(balance, 0.2, 0.1), SeatDecision::one_more);
  for (int times = 0; times < 3; ++times) EXPECT_EQ(window_of(balance, 0, 0.9), SeatDecision::keep);
  EXPECT_EQ(window_of(balance, 0, 0.9), SeatDecision::one_less);
  EXPECT_EQ(window_of(balance, 0, 0.9), SeatDecision::keep) << "it was right to";
}

}  // namespace
}  // namespace maestro
