// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/completion_lengths.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/core/quantile.hpp"

namespace maestro {
namespace {

std::vector<double> drawn(const CompletionLengths& lengths, std::int64_t samples, std::int64_t most) {
  const std::vector<std::int64_t> all = lengths.draw(std::vector(static_cast<std::size_t>(samples), most), 7);
  return {all.begin(), all.end()};
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(CompletionLengths, without_figures_are_the_limit) {
  EXPECT_EQ(CompletionLengths().draw({40, 7}, 1), (std::vector<std::int64_t>{40, 7}));
  EXPECT_EQ(CompletionLengths().origin(), "");
}

TEST(CompletionLengths, have_the_figures_that_they_are_drawn_from) {
  const std::vector<double> all = drawn({{115, 90, 220, 300}, "a run"}, 400, 1000);
  EXPECT_NEAR(mean_of(all), 115, 1);
  EXPECT_NEAR(quantile_of(all, 0.5), 90, 1);
  EXPECT_NEAR(quantile_of(all, 0.95), 220, 2);
  EXPECT_NEAR(*std::ranges::max_element(all), 300, 3);
  EXPECT_FALSE(std::ranges::is_sorted(all));
}

TEST(CompletionLengths, stay_between_one_token_and_the_limit) {
  const std::vector<double> limited = drawn({{100, 90, 220, 300}, "a run"}, 100, 120);
  EXPECT_EQ(*std::ranges::max_element(limited), 120);
  const std::vector<double> skewed = drawn({{3, 2, 10, 12}, "a run"}, 100, 120);
  EXPECT_EQ(*std::ranges::min_element(skewed), 1);
  EXPECT_EQ(drawn({{5, 5, 5, 5}, "a run"}, 3, 120), (std::vector<double>{5, 5, 5}));
}

}  // namespace
}  // namespace maestro
