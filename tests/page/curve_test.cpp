// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/curve.hpp"

#include <gtest/gtest.h>

#include <random>

namespace maestro {
namespace {

TEST(ThinnedCurve, keeps_every_value_of_a_short_curve) {
  ThinnedCurve curve(4);
  for (std::uint64_t step = 3; step < 7; ++step) curve.add(step, static_cast<double>(step) / 2);
  ASSERT_EQ(curve.points().size(), 4u);
  EXPECT_EQ(curve.points()[1].first_step, 4u);
  EXPECT_EQ(curve.points()[1].last_step, 4u);
  EXPECT_DOUBLE_EQ(curve.points()[1].mean(), 2.0);
}

TEST(ThinnedCurve, of_any_length_is_bounded_and_keeps_sums_and_extremes) {  // CV-1, CV-2
  for (const std::size_t most : {2u, 3u, 7u, 600u}) {
    for (const std::uint64_t steps : {1u, 5u, 601u, 4999u, 100'000u}) {
      std::mt19937 random(7);
      ThinnedCurve curve(most);
      double sum = 0, low = 1e9, high = -1e9;
      for (std::uint64_t step = 1; step <= steps; ++step) {
        const double value = static_cast<double>(random() % 100'000) - 50'000;
        sum += value;
        low = std::min(low, value);
        high = std::max(high, value);
        curve.add(step, value);
      }
      const auto& points = curve.points();
      ASSERT_LE(points.size(), most);
      double point_sum = 0, point_low = 1e9, point_high = -1e9;
      std::uint64_t next = 1;
      for (const CurvePoint& point : points) {
        EXPECT_EQ(point.first_step, next) << "points are consecutive";
        EXPECT_EQ(point.last_step, next + point.count - 1);
        next = point.last_step + 1;
        point_sum += point.sum;
        point_low = std::min(point_low, point.low);
        point_high = std::max(point_high, point.high);
      }
      EXPECT_EQ(next, steps + 1);
      EXPECT_EQ(point_sum, sum);
      EXPECT_EQ(point_low, low);
      EXPECT_EQ(point_high, high);
      EXPECT_GE(points.size(), std::min<std::size_t>(steps, most / 2)) << "no coarser than it must be";
    }
  }
}

TEST(ThinnedCurve, is_thinned_further_for_a_chart) {
  std::vector<CurvePoint> points;
  for (std::uint64_t step = 1; step <= 10; ++step) {
    const auto value = static_cast<double>(step);
    points.push_back({step, step, 1, value, value, value});
  }
  const std::vector<CurvePoint> few = thinned(points, 3);
  ASSERT_EQ(few.size(), 3u);
  EXPECT_EQ(few[0].last_step, 4u);
  EXPECT_EQ(few[2].high, 10.0);
  EXPECT_EQ(thinned(points, 0).size(), 1u);
  EXPECT_TRUE(thinned({}, 3).empty());
}

}  // namespace
}  // namespace maestro
