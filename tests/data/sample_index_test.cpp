// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/sample_index.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "runtime/core/random.hpp"
#include "runtime/core/result.hpp"

namespace maestro {
namespace {

enum Use : int { unused = 0, by_train = 1, by_validation = 2 };

/// Reads all samples and checks IX-1, IX-2 and IX-3.
void check_invariants(const SampleIndexOptions& options) {
  SCOPED_TRACE("tokens " + std::to_string(options.tokens) + ", sequence " + std::to_string(options.sequence) +
               ", fraction " + std::to_string(options.validation_fraction));
  const SampleIndex index(options);
  std::vector<int> readers(static_cast<std::size_t>(options.tokens), unused);
  for (const Split split : {Split::train, Split::validation}) {
    std::int64_t input_end = 0;
    for (std::uint64_t id = 0; id < index.samples(split); ++id) {
      const auto [begin, length] = index.window(split, SampleId(id));
      ASSERT_GE(length, 2);
      ASSERT_LE(length, options.sequence);
      ASSERT_GE(begin, input_end) << "an input position belongs to two samples";
      ASSERT_LE(begin + length + 1, options.tokens);
      input_end = begin + length;
      const int mine = split == Split::train ? by_train : by_validation;
      for (std::int64_t at = begin; at <= begin + length; ++at) readers[static_cast<std::size_t>(at)] |= mine;
    }
  }
  for (const int reader : readers) ASSERT_NE(reader, by_train | by_validation) << "a token is read by both splits";
}

std::int64_t fewest_tokens(SampleIndexOptions options) {
  for (options.tokens = 0;; ++options.tokens) {
    try {
      const SampleIndex index(options);
      return options.tokens;
    } catch (const JobError&) {
    }
  }
}

TEST(SampleIndex, keeps_its_invariants_for_any_options) {  // IX-1, IX-2, IX-3
  Random random(2024);
  for (int trial = 0; trial < 300; ++trial) {
    SampleIndexOptions options;
    options.sequence = 2 + static_cast<std::int64_t>(random.below(40));
    options.validation_fraction = random.uniform() * 0.95 + 0.01;
    options.mode = trial % 2 == 0 ? SplitMode::tail : SplitMode::interleaved;
    options.tokens = 42 * 200 + static_cast<std::int64_t>(random.below(20000));
    check_invariants(options);
  }
}

TEST(SampleIndex, the_shortest_accepted_corpus_holds_a_full_sample_of_each_split) {
  for (const SplitMode mode : {SplitMode::tail, SplitMode::interleaved}) {
    for (const double fraction : {0.05, 0.1, 0.3, 0.5, 0.9}) {
      SampleIndexOptions options{.sequence = 8, .validation_fraction = fraction, .mode = mode};
      options.tokens = fewest_tokens(options);
      check_invariants(options);
      const SampleIndex index(options);
      EXPECT_EQ(index.window(Split::train, SampleId(0)).length, 8);
      EXPECT_EQ(index.window(Split::validation, SampleId(0)).length, 8);
    }
  }
}

TEST(SampleIndex, a_tail_split_takes_the_end_for_validation) {
  const SampleIndex index({.tokens = 100, .sequence = 10, .validation_fraction = 0.2, .mode = SplitMode::tail});
  EXPECT_EQ(index.samples(Split::train), 8u);
  EXPECT_EQ(index.window(Split::train, SampleId(7)).length, 9);  // token 80 is in the validation split
  EXPECT_EQ(index.window(Split::validation, SampleId(0)).begin, 80);
  EXPECT_EQ(index.samples(Split::validation), 2u);
}

TEST(SampleIndex, an_interleaved_split_spreads_validation_over_the_corpus) {
  const std::int64_t sequence = 10, block = 16 * sequence;
  const SampleIndex index({block * 100, sequence, 0.1, SplitMode::interleaved});
  std::vector<std::int64_t> begins;
  for (std::uint64_t id = 0; id < index.samples(Split::validation); id += 16) {
    begins.push_back(index.window(Split::validation, SampleId(id)).begin / block);
  }
  EXPECT_THAT(begins, testing::ElementsAre(9, 19, 29, 39, 49, 59, 69, 79, 89, 99));
  EXPECT_EQ(index.samples(Split::train), 1440u);
}

TEST(SampleIndex, blocks_shrink_until_four_of_them_are_validation) {
  const std::int64_t sequence = 10, block = 8 * sequence;  // blocks of 16 would give only three
  const SampleIndex index({block * 60, sequence, 0.1, SplitMode::interleaved});
  std::vector<std::int64_t> begins;
  for (std::uint64_t id = 0; id < index.samples(Split::validation); id += 8) {
    begins.push_back(index.window(Split::validation, SampleId(id)).begin / block);
  }
  EXPECT_THAT(begins, testing::ElementsAre(9, 19, 29, 39, 49, 59));
}

TEST(SampleIndex, a_remainder_of_one_position_is_dropped) {  // IX-3
  const auto samples = [](std::int64_t tokens) {
    return SampleIndex({tokens, 10, 0.0, SplitMode::tail}).samples(Split::train);
  };
  EXPECT_EQ(samples(21), 2u);
  EXPECT_EQ(samples(22), 2u);
  EXPECT_EQ(samples(23), 3u);
}

TEST(SampleIndex, without_validation_everything_is_trained_on) {
  for (const SplitMode mode : {SplitMode::tail, SplitMode::interleaved}) {
    const SampleIndex index({11, 10, 0.0, mode});
    EXPECT_EQ(index.samples(Split::train), 1u);
    EXPECT_EQ(index.samples(Split::validation), 0u);
  }
}

TEST(SampleIndex, a_corpus_that_is_too_short_is_told_how_long_it_must_be) {
  const SampleIndexOptions options{.tokens = 50, .sequence = 32, .validation_fraction = 0.1};
  try {
    const SampleIndex index(options);
    FAIL() << "accepted";
  } catch (const JobError& error) {
    const std::string needed = std::to_string(fewest_tokens(options));
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("50 tokens"), testing::HasSubstr(needed)));
  }
}

TEST(SampleIndex, options_out_of_range_are_refused) {
  EXPECT_THROW(SampleIndex({1000, 1, 0.1, SplitMode::tail}), JobError);
  EXPECT_THROW(SampleIndex({1000, 8, 1.0, SplitMode::tail}), JobError);
  EXPECT_THROW(SampleIndex({1000, 8, -0.1, SplitMode::tail}), JobError);
  EXPECT_THROW(SampleIndex({1000, 8, 1e-300, SplitMode::interleaved}), JobError);
}

TEST(SampleIndex, a_sample_that_does_not_exist_is_refused) {
  const SampleIndex index({1000, 8, 0.1, SplitMode::tail});
  EXPECT_THROW((void)index.window(Split::train, SampleId(index.samples(Split::train))), std::out_of_range);
}

}  // namespace
}  // namespace maestro
