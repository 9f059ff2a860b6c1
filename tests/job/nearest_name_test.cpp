// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/nearest_name.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace maestro {
namespace {

using Names = std::vector<std::string>;

TEST(EditDistance, counts_each_kind_of_slip_once) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("lr", "lr"), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("steps", "step"), 1u);
  EXPECT_EQ(edit_distance("steps", "stepps"), 1u);
  EXPECT_EQ(edit_distance("steps", "staps"), 1u);
  EXPECT_EQ(edit_distance("steps", "setps"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(EditDistance, edits_no_part_twice) {
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);
}

TEST(EditDistance, is_symmetric) {
  const Names names{"", "a", "ab", "ba", "micro_batch", "micro_bach", "warmup_steps", "steps"};
  for (const auto& a : names) {
    for (const auto& b : names) EXPECT_EQ(edit_distance(a, b), edit_distance(b, a)) << a << ' ' << b;
  }
}

TEST(NearestName, finds_the_likely_slip) {
  EXPECT_EQ(nearest_name("micro_bach", Names{"replicas", "micro_batch"}), "micro_batch");
  EXPECT_EQ(nearest_name("layer", Names{"width", "layers"}), "layers");
}

TEST(NearestName, ignores_case_and_dashes) {
  EXPECT_EQ(nearest_name("Micro-Batch", Names{"macro_batch", "micro_batch"}), "micro_batch");
  EXPECT_EQ(nearest_name("FP32", Names{"bf16", "fp32"}), "fp32");
}

TEST(NearestName, is_silent_when_nothing_is_near) {
  EXPECT_EQ(nearest_name("xyzzy", Names{"lr", "steps"}), std::nullopt);
  EXPECT_EQ(nearest_name("lr", Names{"steps"}), std::nullopt);
  EXPECT_EQ(nearest_name("", Names{"a"}), std::nullopt);
  EXPECT_EQ(nearest_name("a", Names{}), std::nullopt);
  EXPECT_EQ(nearest_name(std::string(100000, 'a'), Names{"a"}), std::nullopt);
}

TEST(NearestName, breaks_ties_by_case_and_then_by_order) {
  EXPECT_EQ(nearest_name("Lr", Names{"lr", "Lr"}), "Lr");
  EXPECT_EQ(nearest_name("beta", Names{"beta2", "beta1"}), "beta2");
}

}  // namespace
}  // namespace maestro
