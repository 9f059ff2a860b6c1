// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/normal_values.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <thread>
#include <vector>

#include "runtime/core/random.hpp"

namespace maestro {
namespace {

std::vector<float> normals(std::uint64_t stream, std::size_t count, double deviation = 1) {
  std::vector<float> values(count);
  fill_normal(7, stream, deviation, values);
  return values;
}

TEST(NormalValues, moments_and_tails_are_those_of_the_normal_distribution) {
  constexpr std::size_t count = 1 << 20;
  double sums[5] = {}, beyond = 0, neighbours = 0, before = 0;
  for (const float value : normals(1, count)) {
    for (int power = 1; power <= 4; ++power) sums[power] += std::pow(value, power) / count;
    beyond += std::abs(value) > 3 ? 1.0 / count : 0;
    neighbours += value * before / count;
    before = value;
  }
  // Four standard errors of each mean.
  const double error = 4 / std::sqrt(static_cast<double>(count));
  EXPECT_NEAR(sums[1], 0, error);
  EXPECT_NEAR(sums[2], 1, error * std::sqrt(2.0));
  EXPECT_NEAR(sums[3], 0, error * std::sqrt(15.0));
  EXPECT_NEAR(sums[4], 3, error * std::sqrt(96.0));
  EXPECT_NEAR(beyond, std::erfc(3 / std::sqrt(2.0)), error * std::sqrt(0.0027));
  EXPECT_NEAR(neighbours, 0, error);
}

TEST(NormalValues, each_pair_is_that_of_box_and_muller_for_its_draw) {
  const std::vector<float> values = normals(2, 2000);
  Random random(7, 2);
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const std::uint64_t word = random.next();
    const double uniform = (static_cast<double>(word >> 33) + 0.5) * 0x1p-31;
    const double squares =
        static_cast<double>(values[i]) * values[i] + static_cast<double>(values[i + 1]) * values[i + 1];
    EXPECT_NEAR(squares, -2 * std::log(uniform), 1e-5) << i;
  }
}

TEST(NormalValues, a_value_depends_on_seed_stream_and_place_alone) {
  const std::vector<float> all = normals(3, 1501);
  for (const std::size_t count : {0, 1, 2, 511, 512, 513, 1500}) {
    EXPECT_TRUE(std::ranges::equal(normals(3, count), std::span(all).first(count))) << count;
  }
  EXPECT_NE(normals(4, 8), normals(3, 8));
  const std::vector<float> scaled = normals(3, 1501, 0.5);
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(scaled[i], all[i] / 2) << i;
}

TEST(NormalValues, the_number_of_cores_decides_no_value) {
  const std::vector<float> all = normals(6, (std::size_t{1} << 22) + 3);
  EXPECT_TRUE(std::ranges::equal(normals(6, 1501), std::span(all).first(1501)));
  std::vector<float> alone;
  std::jthread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    alone = normals(6, all.size());
  }).join();
  EXPECT_EQ(alone, all);
}

TEST(NormalValues, the_bits_are_the_same_on_every_processor) {
  std::uint64_t hash = 0;
  for (const float value : normals(5, 10001)) hash = mix64(hash, std::bit_cast<std::uint32_t>(value));
  EXPECT_EQ(hash, 0x664a84a54270754fU);
}

}  // namespace
}  // namespace maestro
