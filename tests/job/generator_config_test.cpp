// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/generator_config.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

TEST(MadePositions, a_block_has_its_share_of_made_samples_in_an_order_of_the_seed) {
  for (const double share : {0.0, 0.001, 0.25, 0.5, 1.0}) {
    for (const std::uint64_t block : {0, 1, 77}) {
      std::uint64_t made = 0;
      for (std::uint64_t at = 0; at < 1024; ++at) made += is_made_at(block * 1024 + at, share, 5) ? 1 : 0;
      EXPECT_EQ(made, static_cast<std::uint64_t>(share * 1024 + 0.5));
    }
  }
  std::uint64_t differ = 0;
  for (std::uint64_t at = 0; at < 1024; ++at) {
    differ += is_made_at(at, 0.5, 5) != is_made_at(at, 0.5, 6) ? 1 : 0;
    EXPECT_EQ(is_made_at(at, 0.5, 5), is_made_at(at, 0.5, 5));
  }
  EXPECT_GT(differ, 300U);
}

TEST(Prompt, ends_before_the_last_learned_answer) {
  const auto length = [](std::vector<std::int32_t> targets, std::int64_t given = 0) {
    return prompt_length(targets, given);
  };
  EXPECT_EQ(length({-1, -1, 5, 6}), 3);
  EXPECT_EQ(length({-1, 5, 6, -1, -1, 7}), 6);
  EXPECT_EQ(length({-1, 5, 6, -1}), 2) << "what follows the last answer is left out";
  EXPECT_EQ(length({5, 6}), 1);
  EXPECT_EQ(length({-1, -1}), 2) << "a sample without an answer is a prompt";
  EXPECT_EQ(length({}), 0);
  EXPECT_EQ(length({5, 6, 7}, 2), 2);
  EXPECT_EQ(length({5, 6, 7}, 9), 3);
}

}  // namespace
}  // namespace maestro
