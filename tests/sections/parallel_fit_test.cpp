// SPDX-License-Identifier: Apache-2.0
#include "sections/parallel_fit.hpp"

#include <gtest/gtest.h>

#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/language_model_head.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

std::string refusal(const CutSizes& sizes, Layout layout) {
  try {
    check_parallel_fit("student", sizes, layout);
  } catch (const JobError& error) {
    return error.what();
  }
  return "fits";
}

TEST(ParallelFit, what_divides_fits) {
  EXPECT_EQ(refusal({.heads = 8, .kv_heads = 4, .ffn = 24, .vocabulary = 37}, {2, 2}), "fits");
  EXPECT_EQ(refusal({.heads = 8, .kv_heads = 8, .ffn = 4, .vocabulary = 4}, {4, 2}), "fits");
  EXPECT_EQ(refusal({}, {7, 3}), "fits");
  EXPECT_EQ(refusal({.heads = 8, .kv_heads = 2}, {1, 8}), "fits") << "four ranks have the same key head";
  EXPECT_EQ(refusal({.heads = 8, .kv_heads = 2}, {2, 4}), "fits");
  EXPECT_EQ(refusal({.heads = 9, .kv_heads = 3}, {1, 2}), "fits")
      << "both ranks have all heads, for half of the queries";
  EXPECT_EQ(refusal({.heads = 12, .kv_heads = 4}, {2, 16}), "fits");
}

TEST(ParallelFit, a_degree_that_does_not_divide_is_named_with_the_nearest_layout) {
  EXPECT_EQ(refusal({.heads = 4}, {3, 1}),
            "student.tensor = 3: 4 heads cannot be cut in 3; nearest that fits: tensor = 2");
  EXPECT_EQ(refusal({.heads = 4}, {3, 2}),
            "student.tensor = 3: 4 heads cannot be cut in 3; nearest that fits: tensor = 2, context = 2");
  EXPECT_EQ(refusal({.delta_key_heads = 4}, {4, 2}),
            "student.context = 2: 4 delta_key_heads cannot be cut in tensor * context = 8; nearest that fits: tensor = "
            "4, context = 1");
  EXPECT_EQ(refusal({.delta_key_heads = 12}, {2, 4}),
            "student.context = 4: 12 delta_key_heads cannot be cut in tensor * context = 8; nearest that fits: tensor "
            "= 1, context = 4")
      << "as near as tensor = 2, context = 3, with fewer ranks";
  EXPECT_EQ(refusal({.heads = 8, .kv_heads = 2}, {4, 1}),
            "student.tensor = 4: 2 kv_heads cannot be cut in 4; nearest that fits: tensor = 2");
  EXPECT_EQ(refusal({.heads = 8, .kv_heads = 8, .delta_key_heads = 2}, {1, 4}),
            "student.context = 4: 2 delta_key_heads cannot be cut in 4; nearest that fits: tensor = 1, context = 2");
  EXPECT_EQ(refusal({.heads = 12, .ffn = 30}, {4, 1}),
            "student.tensor = 4: 30 ffn cannot be cut in 4; nearest that fits: tensor = 3");
  EXPECT_EQ(refusal({.vocabulary = 5}, {8, 1}),
            "student.tensor = 8: a vocabulary of 5 cannot be cut in 8; nearest that fits: tensor = 5");
}

TEST(ParallelFit, ranks_that_share_experts_divide_ranks_and_experts) {
  const auto refusal = [](std::int64_t experts, const Layout& layout) -> std::string {
    try {
      check_expert_fit("student", experts, layout);
    } catch (const JobError& error) {
      return error.what();
    }
    return "fits";
  };
  EXPECT_EQ(refusal(0, {2, 2}), "fits");
  EXPECT_EQ(refusal(8, {2, 2, 4}), "fits");
  EXPECT_EQ(refusal(6, {2, 2, 2}), "fits");
  EXPECT_EQ(refusal(0, {2, 2, 2}), "student.expert = 2: the section has no experts; leave expert out");
  EXPECT_EQ(refusal(6, {2, 2, 4}), "student.expert = 4: 6 experts cannot be cut in 4; nearest that fits: expert = 2");
  EXPECT_EQ(refusal(12, {2, 2, 3}),
            "student.expert = 3: tensor * context = 4 ranks cannot be cut in 3; nearest that fits: expert = 4");
  EXPECT_EQ(refusal(12, {2, 1, 4}),
            "student.expert = 4: tensor * context = 2 ranks cannot be cut in 4; nearest that fits: expert = 2");
}

TEST(ParallelFit, sections_check_on_the_meta_device_too) {
  Bench bench;
  DecoderConfig config;
  config.layers = 1;
  config.width = 16;
  config.heads = 4;
  config.ffn = 24;
  config.vocabulary = 37;
  config.positions = 12;
  SectionContext context = bench.context("student", true);
  context.meta = true;
  context.parallel.layout = {3, 1};
  try {
    DecoderLm(context, {config, {}});
    FAIL() << "no error";
  } catch (const JobError& error) {
    EXPECT_STREQ(error.what(), "student.tensor = 3: 4 heads cannot be cut in 3; nearest that fits: tensor = 2");
  }
  config.tied = false;
  EXPECT_NO_THROW(LanguageModelHead(context, {config, {}}));  // it is without attention heads
}

}  // namespace
}  // namespace maestro::testing
