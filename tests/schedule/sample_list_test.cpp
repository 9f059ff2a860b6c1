// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/sample_list.hpp"

#include <gmock/gmock.h>

#include "tests/schedule/planner_options.hpp"

namespace maestro {
namespace {

SampleRef sample(std::int64_t tokens, std::int64_t patches = 0, std::int64_t images = 0, std::uint32_t source = 0) {
  SampleRef made{SampleId(7), tokens, patches, patches, images};
  made.source = source;
  return made;
}

TEST(SampleList, names_tokens_patches_images_source_and_count) {
  std::vector<SampleRef> samples{sample(512), sample(512), sample(512), sample(40, 256, 1), sample(7, 0, 0, 2)};
  EXPECT_EQ(sample_list(samples), "512*3 40/256/1 7@2");
  samples[3].visual = 16;
  EXPECT_EQ(sample_list(samples), "512*3 40/256/1/16 7@2");
  samples[3].other_patches = 1024;
  samples[3].other_images = 2;
  EXPECT_EQ(sample_list(samples), "512*3 40/256/1/16+1024/2 7@2");
  samples[3].other_tokens = 88;
  samples[3].other_visual = 64;
  samples[3].answers = 5;
  EXPECT_EQ(sample_list(samples), "512*3 40/256/1/16+1024/2/64/88/5 7@2");
  EXPECT_TRUE(parse_sample_list(sample_list(samples)).value_or_throw()[3].same_size(samples[3]));
  samples[4].frames = 30;
  samples[4].clips = 2;
  samples[4].heard = 14;
  EXPECT_EQ(sample_list(samples), "512*3 40/256/1/16+1024/2/64/88/5 7~30/2/14@2");
  EXPECT_TRUE(parse_sample_list(sample_list(samples)).value_or_throw()[4].same_size(samples[4]));
  EXPECT_EQ(sample_list({}), "");
}

TEST(SampleList, is_read_back_as_the_same_samples) {  // SL-1
  testing::Generator random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<SampleRef> samples = testing::random_samples(random, 30, 3);
    for (SampleRef& each : samples) each.images = each.patches > 0 ? 1 : 0;
    const std::vector<SampleRef> read = parse_sample_list(sample_list(samples)).value_or_throw();
    ASSERT_EQ(read.size(), samples.size());
    for (std::size_t at = 0; at < read.size(); ++at) {
      EXPECT_EQ(read[at].id, SampleId(at));
      EXPECT_EQ(read[at].tokens, samples[at].tokens);
      EXPECT_EQ(read[at].patches, samples[at].patches);
      EXPECT_EQ(read[at].visual, samples[at].visual);
      EXPECT_EQ(read[at].images, samples[at].images);
      EXPECT_TRUE(read[at].same_size(samples[at]));
    }
  }
}

TEST(SampleList, what_is_no_sample_is_named) {
  for (const char* wrong : {"x", "-3", "5/2", "5/2/", "5/2/1/", "5/2/1/x", "5@", "5+", "5+1", "5+1/1/", "5+1/1/1/1",
                            "5~1/2", "5*0", "5*-1", "5*99999999999", "5 * 3", "5@-1", "5x"}) {
    const auto read = parse_sample_list(std::string("12*2 ") + wrong);
    ASSERT_FALSE(read) << wrong;
    EXPECT_THAT(read.error().message, ::testing::HasSubstr("is no sample")) << wrong;
  }
  const auto read = parse_sample_list(
      "\x7f"
      "2*8");
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, ::testing::StartsWith("\"\\x7f2*8\" is no sample"));
}

}  // namespace
}  // namespace maestro
