// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/pass_fit.hpp"

#include <gtest/gtest.h>

#include <random>

namespace maestro {
namespace {

TEST(PassFit, finds_the_line_that_its_points_lie_on) {  // FI-1
  PassFit fit;
  for (const double units : {100.0, 200.0, 400.0, 50.0}) fit.add(units, 3 + 0.02 * units);
  EXPECT_NEAR(fit.ms(1000), 23, 1e-9);
  EXPECT_NEAR(fit.ms(0), 3, 1e-9);
}

TEST(PassFit, equal_units_give_a_rate_alone) {
  PassFit fit;
  fit.add(100, 4);
  fit.add(100, 6);
  EXPECT_NEAR(fit.ms(200), 10, 1e-9);
}

TEST(PassFit, points_far_above_the_others_are_left_out) {
  PassFit fit;
  for (int n = 1; n <= 8; ++n) fit.add(10 * n, 10 * n);
  fit.add(20, 900);
  EXPECT_NEAR(fit.ms(50), 50, 1e-9);
}

TEST(PassFit, is_never_negative) {  // FI-2
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    PassFit fit;
    for (int point = 0; point < 6; ++point) fit.add(1 + random() % 50, static_cast<double>(random() % 50));
    for (const double units : {0.0, 1.0, 25.0, 1000.0}) EXPECT_GE(fit.ms(units), 0);
  }
}

TEST(PassFit, leaves_out_what_is_no_pass) {
  PassFit fit;
  fit.add(0, 5);
  fit.add(5, -1);
  EXPECT_TRUE(fit.empty());
  EXPECT_EQ(fit.ms(7), 0);
}

}  // namespace
}  // namespace maestro
