// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/made_figures.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;

MadeSamples twenty_samples() {
  MadeSamples made;
  for (std::int32_t length = 1; length <= 20; ++length) made.lengths.push_back(length);
  made.most_tokens = 32;
  made.prompt_tokens = 300;
  made.stopped = 15;
  made.version = StepId(40);
  made.replicas = 2;
  made.work = {2000, 1500, 12};  // 1 s of each replica
  made.rollout_ms = 1100;
  return made;
}

TEST(MadeFigures, are_of_the_samples_that_the_step_learned_from) {
  EXPECT_THAT(figures_of(twenty_samples(), StepId(42)),
              UnorderedElementsAre(Pair("generated_tokens", 210), Pair("prompt_tokens", 300), Pair("length_mean", 10.5),
                                   Pair("length_p50", 11), Pair("length_p95", 20), Pair("length_max", 20),
                                   Pair("stop_share", 0.75), Pair("version", 40), Pair("staleness", 2),
                                   Pair("rollout_ms", 1100), Pair("take_ms", 12), Pair("tokens_per_s", 210),
                                   Pair("slots_busy", 0.75)));
}

TEST(MadeFigures, of_samples_that_were_read_back_lack_times) {
  MadeSamples read = twenty_samples();
  read.replicas = 0;
  const auto figures = figures_of(read, StepId(42));
  EXPECT_EQ(figures.size(), 9U);
  EXPECT_FALSE(figures.contains("rollout_ms"));
}

TEST(MadeFigures, lengths_are_counted_in_equal_parts_of_the_limit) {
  EXPECT_THAT(length_histogram(twenty_samples()), ElementsAre(2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0));
  MadeSamples few;
  few.most_tokens = 3;
  few.lengths = {1, 2, 3, 3};
  const std::vector<std::int64_t> counts = length_histogram(few);
  EXPECT_EQ(counts[5], 1);  // (5 * 3/16, 6 * 3/16] has 1
  EXPECT_EQ(counts[10], 1);
  EXPECT_EQ(counts[15], 2);
}

}  // namespace
}  // namespace maestro
