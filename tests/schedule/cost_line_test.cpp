// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/cost_line.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/core/random.hpp"

namespace maestro {
namespace {

TEST(CostLine, a_single_pass_gives_its_time_per_unit) {  // CF-1
  CostLine cost;
  EXPECT_FALSE(cost.known());
  cost.measured(40, 8);
  ASSERT_TRUE(cost.known());
  EXPECT_DOUBLE_EQ(cost.line().ms(40), 8);
  EXPECT_DOUBLE_EQ(cost.line().ms(10), 2);
}

TEST(CostLine, passes_of_equal_units_give_no_constant_however_their_times_differ) {  // CF-1
  CostLine cost;
  Random random(1);
  double mean_ms = 0;
  for (int pass = 0; pass < 100; ++pass) {
    const double ms = 10 + random.uniform();
    mean_ms = pass == 0 ? ms : mean_ms + (ms - mean_ms) / 8;
    cost.measured(500, ms);
    EXPECT_EQ(cost.line().constant_ms, 0);
    EXPECT_NEAR(cost.line().ms(500), mean_ms, 1e-9);
  }
}

TEST(CostLine, reproduces_its_own_data) {  // CF-2
  Random random(2);
  for (int trial = 0; trial < 200; ++trial) {
    const double constant = trial % 5 == 0 ? 0 : 10 * random.uniform();
    const double per_unit = trial % 7 == 0 ? 0 : random.uniform();
    if (constant + per_unit == 0) continue;
    CostLine cost;
    for (int pass = 0; pass < 2 + trial; ++pass) {
      const double units = 1 + (pass % 2 == 0 ? 1000 * random.uniform() : 10 * random.uniform());
      cost.measured(units, constant + per_unit * units);
    }
    EXPECT_NEAR(cost.line().constant_ms, constant, 1e-6) << trial;
    EXPECT_NEAR(cost.line().ms_per_unit, per_unit, 1e-8) << trial;
  }
}

TEST(CostLine, has_no_negative_part_whatever_was_measured) {  // CF-3
  Random random(3);
  CostLine cost;
  for (int pass = 0; pass < 20'000; ++pass) {
    cost.measured(1 + 100 * random.uniform(), std::pow(10, 4 * random.uniform() - 2));
    EXPECT_GE(cost.line().constant_ms, 0);
    EXPECT_GE(cost.line().ms_per_unit, 0);
  }
  CostLine falling;  // more units take less time
  for (int pass = 0; pass < 40; ++pass) falling.measured(10 + pass % 4, 20 - pass % 4);
  EXPECT_GE(falling.line().ms_per_unit, 0);
  EXPECT_NEAR(falling.line().ms(11.5), 18.5, 1);
}

TEST(CostLine, a_single_outlier_raises_the_line_by_a_sixteenth) {  // CF-4
  for (const double outlier_units : {1.0, 50.0, 200.0, 400.0, 3000.0}) {
    CostLine cost;
    Random random(4);
    for (int pass = 0; pass < 60; ++pass) {
      const double units = 50 + 350 * random.uniform();
      cost.measured(units, (4 + 0.05 * units) * (1 + 0.02 * random.normal()));
    }
    const CostLine::Line before = cost.line();
    cost.measured(outlier_units, 1000);
    for (const double units : {50.0, 100.0, 200.0, 400.0}) {
      EXPECT_NEAR(cost.line().ms(units) / before.ms(units), 1 + 1.0 / 16, 1e-9) << outlier_units << ", " << units;
    }
  }
}

TEST(CostLine, follows_a_device_that_has_become_four_times_as_slow) {
  CostLine cost;
  Random random(5);
  const auto measure = [&](double slower) {
    const double units = 50 + 350 * random.uniform();
    cost.measured(units, slower * (4 + 0.05 * units));
  };
  for (int pass = 0; pass < 40; ++pass) measure(1);
  for (int pass = 0; pass < 80; ++pass) measure(4);
  EXPECT_NEAR(cost.line().ms(50), 4 * 6.5, 1);
  EXPECT_NEAR(cost.line().ms(400), 4 * 24, 1);
}

TEST(CostLine, noise_of_nearly_equal_passes_makes_no_constant) {
  // Units differ within 1%, times within 10%: a line through them would have any slope.
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CostLine cost;
    Random random(seed, 6);
    for (int pass = 0; pass < 60; ++pass) {
      cost.measured(100 + random.uniform(), 10 * (1 + 0.1 * random.normal()));
    }
    sum += cost.line().ms(400);
  }
  EXPECT_NEAR(sum / 50, 40, 6);
}

TEST(CostLine, predicts_small_passes_that_a_rate_alone_would_underestimate) {
  double worst = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CostLine cost;
    Random random(seed, 7);
    for (int pass = 0; pass < 60; ++pass) {
      const double units = 50 + 350 * random.uniform();
      cost.measured(units, (4 + 0.05 * units) * (1 + 0.05 * random.normal()));
    }
    worst = std::max(worst, std::abs(cost.line().ms(50) / 6.5 - 1));
  }
  EXPECT_LT(worst, 0.25);  // 15.25 ms for 225 units: with a rate only, 3.4 ms would be 48% less
}

}  // namespace
}  // namespace maestro
