// SPDX-License-Identifier: Apache-2.0
#include "tests/sections/example_heads.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "sections/section_check.hpp"

namespace maestro {
namespace {

template <class Head>
std::vector<GradientCheck> checked(std::vector<std::int64_t> rows) {
  GradientCheckOptions options;
  options.rows = std::move(rows);
  return check_gradients([](const SectionContext& context) { return std::make_unique<Head>(context); }, options);
}

void expect_right(const std::vector<GradientCheck>& checks, std::size_t count) {
  EXPECT_EQ(checks.size(), count);
  for (const GradientCheck& check : checks) {
    EXPECT_TRUE(check.agrees()) << check.text();
    EXPECT_GT(std::abs(check.forward), 1e-4) << check.text();
  }
}

TEST(ExampleHeads, a_reward_head_has_the_gradients_of_its_loss) {
  expect_right(checked<heads::RewardHead>({5, 3, 7, 1}), 2);
}

TEST(ExampleHeads, a_contrastive_loss_has_the_gradients_of_its_loss) {
  expect_right(checked<heads::ContrastiveHead>({5, 3, 7, 1, 2, 4}), 2);
}

TEST(ExampleHeads, a_router_has_the_gradients_of_its_output_and_its_loss) {
  expect_right(checked<heads::RouterHead>({5, 3, 7}), 5);
}

}  // namespace
}  // namespace maestro
