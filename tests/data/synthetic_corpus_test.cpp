// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/synthetic/synthetic_corpus.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

struct Read {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
};

Read read(const Corpus& corpus, Split split, std::uint64_t id, std::size_t positions) {
  Read sample{std::vector<std::int32_t>(positions, 77), std::vector<std::int32_t>(positions, 77)};
  corpus.read(split, SampleId(id), sample.tokens, sample.targets);
  return sample;
}

TEST(SyntheticCorpus, its_fingerprint_changes_with_what_it_is_drawn_from) {
  const SyntheticOptions plain{.seed = 3, .sequence = 20, .vocabulary = 100};
  const auto of = [](const SyntheticOptions& options) { return SyntheticCorpus(options).fingerprint(); };
  EXPECT_EQ(of(plain), of(plain));
  EXPECT_NE(of({.seed = 4, .sequence = 20, .vocabulary = 100}), of(plain));
  EXPECT_NE(of({.seed = 3, .sequence = 21, .vocabulary = 100}), of(plain));
  EXPECT_NE(of({.seed = 3, .sequence = 20, .vocabulary = 101}), of(plain));
}

TEST(SyntheticCorpus, follows_its_rule) {
  const SyntheticCorpus corpus({.seed = 3, .sequence = 200, .vocabulary = 100});
  const Read sample = read(corpus, Split::train, 5, 200);
  std::set<int> choices;
  for (std::size_t at = 0; at < 200; ++at) {
    const int choice = (sample.targets[at] - (5 * sample.tokens[at] + 7) % 100 + 100) % 100;
    ASSERT_LT(choice, 4) << "at " << at;
    choices.insert(choice);
    if (at + 1 < 200) {
      ASSERT_EQ(sample.targets[at], sample.tokens[at + 1]);
    }
  }
  EXPECT_EQ(choices.size(), 4u);
}

TEST(SyntheticCorpus, a_sample_depends_on_seed_split_and_id_only) {
  const SyntheticCorpus corpus({.seed = 3, .sequence = 16});
  const Read sample = read(corpus, Split::train, 5, 16);
  EXPECT_EQ(sample.tokens, read(SyntheticCorpus({.seed = 3, .sequence = 16}), Split::train, 5, 16).tokens);
  EXPECT_NE(sample.tokens, read(SyntheticCorpus({.seed = 4, .sequence = 16}), Split::train, 5, 16).tokens);
  EXPECT_NE(sample.tokens, read(corpus, Split::train, 6, 16).tokens);
  EXPECT_NE(sample.tokens, read(corpus, Split::validation, 5, 16).tokens);
}

TEST(SyntheticCorpus, drawn_lengths_depend_on_seed_split_and_id_only) {
  const LengthDistribution lengths({{4, 1}, {64, 0.1}}, 0);
  const SyntheticCorpus corpus({.seed = 3, .lengths = lengths});
  const SyntheticCorpus same({.seed = 3, .lengths = lengths}), other({.seed = 4, .lengths = lengths});
  EXPECT_EQ(corpus.max_length(), 64);
  int of_other_seed = 0, of_other_split = 0;
  for (std::uint64_t id = 0; id < 200; ++id) {
    const std::int64_t length = corpus.length(Split::train, SampleId(id));
    EXPECT_EQ(length, same.length(Split::train, SampleId(id)));
    of_other_seed += length != other.length(Split::train, SampleId(id)) ? 1 : 0;
    of_other_split += length != corpus.length(Split::validation, SampleId(id)) ? 1 : 0;
    EXPECT_EQ(read(corpus, Split::train, id, 64).targets[static_cast<std::size_t>(length) - 1] != ignored_target, true);
  }
  EXPECT_GT(of_other_seed, 100);
  EXPECT_GT(of_other_split, 100);
  EXPECT_NE(corpus.fingerprint(),
            SyntheticCorpus({.seed = 3, .lengths = LengthDistribution({{4, 1}, {64, 0.2}}, 0)}).fingerprint());
  EXPECT_THAT(corpus.describe(), testing::HasSubstr("samples of 4 to 64 tokens"));
}

TEST(SyntheticCorpus, refuses_settings_that_make_no_text) {
  EXPECT_THROW(SyntheticCorpus({.sequence = 1}), JobError);
  EXPECT_THROW(SyntheticCorpus({.vocabulary = 1}), JobError);
}

TEST(Corpus, reading_pads_beyond_the_sample_with_ignored_targets) {
  const SyntheticCorpus corpus({.sequence = 4});
  const Read sample = read(corpus, Split::train, 0, 6);
  EXPECT_EQ(sample.tokens[4], 0);
  EXPECT_EQ(sample.tokens[5], 0);
  EXPECT_EQ(sample.targets[4], ignored_target);
  EXPECT_EQ(sample.targets[5], ignored_target);
  EXPECT_NE(sample.targets[3], ignored_target);
}

TEST(Corpus, reading_into_too_small_spans_or_a_missing_sample_is_refused) {
  const SyntheticCorpus corpus({.sequence = 4, .train_samples = 10});
  EXPECT_THROW(read(corpus, Split::train, 0, 3), std::invalid_argument);
  EXPECT_THROW(read(corpus, Split::train, 10, 4), std::out_of_range);
}

TEST(OpenCorpus, opens_the_synthetic_corpus_with_the_settings_given) {
  DataConfig config;
  config.kind = DataKind::synthetic;
  config.sequence = 12;
  config.vocabulary = 50;
  const auto corpus = open_corpus(config, 9);
  EXPECT_EQ(corpus->vocabulary(), 50);
  EXPECT_EQ(corpus->length(Split::validation, SampleId(0)), 12);
  const SyntheticCorpus same({.seed = 9, .sequence = 12, .vocabulary = 50});
  EXPECT_EQ(read(*corpus, Split::train, 2, 12).tokens, read(same, Split::train, 2, 12).tokens);
  EXPECT_THAT(corpus->describe(), testing::HasSubstr("vocabulary 50"));
}

}  // namespace
}  // namespace maestro
