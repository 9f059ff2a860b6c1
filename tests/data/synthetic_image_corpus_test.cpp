// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/synthetic/synthetic_image_corpus.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

SyntheticImageOptions options(double share, std::int64_t image_size = 16) {
  SyntheticImageOptions out;
  out.text = {.seed = 3, .sequence = 6, .vocabulary = 50};
  out.image_size = image_size;
  out.image_share = share;
  return out;
}

int pictures_in_eight(const SyntheticImageCorpus& corpus, std::uint64_t group) {
  int count = 0;
  for (std::uint64_t id = group * 8; id < group * 8 + 8; ++id) {
    count += corpus.pictures(Split::train, SampleId(id)).images > 0 ? 1 : 0;
  }
  return count;
}

std::uint64_t first_with_picture(const SyntheticImageCorpus& corpus) {
  std::uint64_t id = 0;
  while (corpus.pictures(Split::train, SampleId(id)).images == 0) ++id;
  return id;
}

TEST(SyntheticImageCorpus, its_fingerprint_changes_with_what_it_is_drawn_from) {
  const auto of = [](const SyntheticImageOptions& options) { return SyntheticImageCorpus(options).fingerprint(); };
  EXPECT_EQ(of(options(0.5)), of(options(0.5)));
  EXPECT_NE(of(options(0.25)), of(options(0.5)));
  EXPECT_NE(of(options(0.5, 32)), of(options(0.5)));
}

TEST(SyntheticImageCorpus, pictures_stand_before_texts_of_drawn_lengths) {
  SyntheticImageOptions drawn = options(0.5);
  drawn.text.lengths.emplace(LengthPoints{{4, 1}, {64, 0.1}}, 40);
  const SyntheticImageCorpus corpus(drawn);
  EXPECT_EQ(corpus.max_length(), 40 + corpus.max_patches());
  std::set<std::int64_t> texts;
  for (std::uint64_t id = 0; id < 64; ++id) {
    const SampleId sample(id);
    const std::int64_t text = corpus.targets(Split::train, sample);
    EXPECT_EQ(corpus.length(Split::train, sample), text + corpus.pictures(Split::train, sample).patches);
    texts.insert(text);
  }
  EXPECT_GT(texts.size(), 10u);
  EXPECT_LE(*texts.rbegin(), 40);
}

TEST(SyntheticImageCorpus, every_eight_samples_hold_the_same_number_of_pictures) {  // SY-1
  for (const double share : {0.0, 0.25, 0.5, 1.0}) {
    const SyntheticImageCorpus corpus(options(share));
    for (std::uint64_t group = 0; group < 200; ++group) {
      ASSERT_EQ(pictures_in_eight(corpus, group), std::lround(8 * share)) << group;
    }
  }
}

TEST(SyntheticImageCorpus, a_share_that_is_no_eighth_is_met_over_many_eights) {  // SY-1
  const SyntheticImageCorpus corpus(options(0.3));
  int count = 0;
  for (std::uint64_t group = 0; group < 100; ++group) {
    const int here = pictures_in_eight(corpus, group);
    EXPECT_TRUE(here == 2 || here == 3) << here;
    count += here;
  }
  EXPECT_EQ(count, 240);
}

TEST(SyntheticImageCorpus, no_sample_is_longer_than_the_corpus_says_and_one_with_a_picture_is_as_long) {
  const SyntheticImageCorpus corpus(options(0.5));
  std::int64_t longest = 0;
  for (std::uint64_t sample = 0; sample < 64; ++sample) {
    longest = std::max(longest, corpus.length(Split::train, SampleId(sample)));
  }
  EXPECT_EQ(longest, corpus.max_length());
  EXPECT_EQ(corpus.Corpus::max_length(), corpus.max_length());  // the base class's default
}

TEST(SyntheticImageCorpus, which_of_the_eight_have_pictures_varies) {
  const SyntheticImageCorpus corpus(options(0.5));
  std::set<std::uint64_t> patterns;
  for (std::uint64_t group = 0; group < 100; ++group) {
    std::uint64_t pattern = 0;
    for (std::uint64_t id = 0; id < 8; ++id) {
      pattern = pattern << 1 | (corpus.pictures(Split::train, SampleId(group * 8 + id)).images > 0 ? 1 : 0);
    }
    patterns.insert(pattern);
  }
  EXPECT_GT(patterns.size(), 30u) << "of the 70 there are";
}

TEST(SyntheticImageCorpus, a_picture_stands_before_the_text_of_the_synthetic_corpus) {
  const SyntheticImageCorpus corpus(options(0.5));
  const SyntheticCorpus text(options(0.5).text);
  const SampleId id(first_with_picture(corpus));
  ASSERT_EQ(corpus.length(Split::train, id), 4 + 6);
  EXPECT_EQ(corpus.targets(Split::train, id), 6);
  std::vector<std::int32_t> tokens(10), targets(10), words(6), next(6);
  corpus.read(Split::train, id, tokens, targets);
  text.read(Split::train, id, words, next);
  for (std::size_t at = 0; at < 4; ++at) {
    EXPECT_EQ(tokens[at], image_token);
    EXPECT_EQ(targets[at], ignored_target);
  }
  EXPECT_TRUE(std::equal(words.begin(), words.end(), tokens.begin() + 4));
  EXPECT_TRUE(std::equal(next.begin(), next.end(), targets.begin() + 4));
}

TEST(SyntheticImageCorpus, noise_fills_minus_one_to_one_and_depends_on_the_sample_only) {
  const SyntheticImageCorpus corpus(options(1.0, 64));
  ASSERT_EQ(corpus.patch_columns(), 192);
  ASSERT_EQ(corpus.max_patches(), 64);
  std::vector<float> pixels(64 * 192), again(64 * 192), other(64 * 192);
  std::vector<std::int32_t> places(64 * 3);
  corpus.read_pictures(Split::train, SampleId(1), pixels, places);
  SyntheticImageCorpus(options(1.0, 64)).read_pictures(Split::train, SampleId(1), again, places);
  corpus.read_pictures(Split::train, SampleId(2), other, places);
  EXPECT_EQ(pixels, again);
  EXPECT_NE(pixels, other);
  const auto [least, most] = std::ranges::minmax(pixels);
  EXPECT_LT(least, -0.99f);
  EXPECT_GT(most, 0.99f);
  EXPECT_GE(least, -1.0f);
  EXPECT_LE(most, 1.0f);
  EXPECT_EQ((std::vector<std::int32_t>(places.begin() + 27, places.begin() + 30)),
            (std::vector<std::int32_t>{0, 1, 1}));
}

TEST(SyntheticImageCorpus, reading_pictures_into_other_spans_or_of_no_sample_is_refused) {
  const SyntheticImageCorpus corpus(options(1.0));
  std::vector<float> pixels(3 * 192);
  std::vector<std::int32_t> places(12);
  EXPECT_THROW(corpus.read_pictures(Split::train, SampleId(0), pixels, places), std::invalid_argument);
  EXPECT_THROW((void)corpus.pictures(Split::train, SampleId(std::uint64_t{1} << 20)), std::out_of_range);
}

TEST(SyntheticImageCorpus, refuses_settings_that_make_no_picture) {
  EXPECT_THROW(SyntheticImageCorpus(options(1.5)), JobError);
  EXPECT_THROW(SyntheticImageCorpus(options(-0.1)), JobError);
  EXPECT_THROW(SyntheticImageCorpus(options(0.5, 12)), JobError);
  EXPECT_THROW(SyntheticImageCorpus(options(0.5, 0)), JobError);
}

TEST(OpenCorpus, opens_the_synthetic_corpus_with_pictures) {
  DataConfig config;
  config.kind = DataKind::synthetic_images;
  config.sequence = 12;
  config.vocabulary = 4096;
  const auto corpus = open_corpus(config, 9);
  EXPECT_EQ(corpus->max_patches(), 64);
  EXPECT_EQ(corpus->picture_grids().largest, (PatchGrid{8, 8}));
  EXPECT_TRUE(corpus->picture_grids().one_width);
  EXPECT_EQ(corpus->vocabulary(), 4096);
}

}  // namespace
}  // namespace maestro
