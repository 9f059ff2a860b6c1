// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace maestro {
namespace {

TEST(Random, agrees_with_splitmix64_as_published) {
  // First outputs of the reference splitmix64.c with start value 1234567.
  Random random(RandomState{1234567, 0});
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

TEST(Random, streams_and_seeds_differ) {
  std::set<std::uint64_t> firsts;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (std::uint64_t stream = 0; stream < 50; ++stream) firsts.insert(Random(seed, stream).next());
  }
  EXPECT_EQ(firsts.size(), 2500u);
}

TEST(Random, goes_on_from_a_saved_state) {
  Random random(3, 4);
  for (int draw = 0; draw < 10; ++draw) (void)random.normal();
  Random resumed(random.state());
  EXPECT_EQ(random.state().draws, 20u);
  for (int draw = 0; draw < 10; ++draw) EXPECT_EQ(random.next(), resumed.next());
}

TEST(Random, uniform_and_normal_have_the_moments_they_should) {
  constexpr int draws = 200000;
  Random random(11);
  double uniform = 0, normal = 0, square = 0, fourth = 0;
  for (int draw = 0; draw < draws; ++draw) {
    const double u = random.uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    uniform += u / draws;
    const double n = random.normal();
    normal += n / draws;
    square += n * n / draws;
    fourth += n * n * n * n / draws;
  }
  // Five standard errors: sqrt(1/12/N), sqrt(1/N), sqrt(2/N), sqrt(96/N).
  EXPECT_NEAR(uniform, 0.5, 5 * std::sqrt(1.0 / 12 / draws));
  EXPECT_NEAR(normal, 0.0, 5 * std::sqrt(1.0 / draws));
  EXPECT_NEAR(square, 1.0, 5 * std::sqrt(2.0 / draws));
  EXPECT_NEAR(fourth, 3.0, 5 * std::sqrt(96.0 / draws));
}

TEST(Random, below_covers_its_range_evenly) {
  std::vector<int> hits(7);
  Random random(5);
  for (int draw = 0; draw < 70000; ++draw) ++hits[random.below(7)];
  for (const int hit : hits) EXPECT_NEAR(hit, 10000, 5 * std::sqrt(70000 * (1.0 / 7) * (6.0 / 7)));
}

}  // namespace
}  // namespace maestro
