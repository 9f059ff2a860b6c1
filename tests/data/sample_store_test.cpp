// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/sample_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"

namespace maestro {
namespace {

using Tokens = std::vector<std::int32_t>;

struct ReadTokens {
  Tokens tokens, targets;
  bool operator==(const ReadTokens&) const = default;
};

ReadTokens read(const SampleStore& store, const MadeSampleId& id) {
  const auto length = static_cast<std::size_t>(store.length(id));
  ReadTokens read{Tokens(length), Tokens(length)};
  store.read(id, read.tokens, read.targets);
  return read;
}

TEST(MadeSampleId, is_told_from_samples_of_a_corpus_and_has_its_parts) {
  const MadeSampleId made{StepId((std::uint64_t{1} << 43) - 1), most_made_samples - 1};
  EXPECT_TRUE(is_made(sample_id(made)));
  EXPECT_EQ(made_sample_id(sample_id(made)), made);
  EXPECT_EQ(made_sample_id(sample_id({StepId(7), 3})), (MadeSampleId{StepId(7), 3}));
  EXPECT_FALSE(is_made(SampleId((std::uint64_t{1} << 40) - 1)));
}

TEST(SampleStore, the_completion_is_learned_and_the_prompt_is_not) {
  SampleStore store;
  constexpr std::int32_t none = ignored_target;
  const std::vector<std::pair<MadeSample, ReadTokens>> cases = {
      {{{1, 2, 3}, {4, 5}, {}}, {{1, 2, 3, 4}, {none, none, 4, 5}}},
      {{{1, 2, 3}, {4}, {}}, {{1, 2, 3}, {none, none, 4}}},
      {{{1}, {4, 5, 6}, {}}, {{1, 4, 5}, {4, 5, 6}}},
      {{{1}, {4}, {}}, {{1}, {4}}},
      {{{1, 2}, {4}, {}}, {{1, 2}, {none, 4}}},
      {{{1, 2}, {4, 5}, {}}, {{1, 2, 4}, {none, 4, 5}}},
      {{{1, 2}, {1, 2}, {}}, {{1, 2, 1}, {none, 1, 2}}},
      {{{7, 7, 7}, {7, 7, 7}, {}}, {{7, 7, 7, 7, 7}, {none, none, 7, 7, 7}}},
      {{{0}, {0, 0}, {}}, {{0, 0}, {0, 0}}},
      {{{9, 8, 7, 6, 5}, {4}, {}}, {{9, 8, 7, 6, 5}, {none, none, none, none, 4}}},
      {{{9}, {8, 7, 6, 5, 4}, {}}, {{9, 8, 7, 6, 5}, {8, 7, 6, 5, 4}}},
      {{{3, 1}, {4, 1, 5, 9}, {}}, {{3, 1, 4, 1, 5}, {none, 4, 1, 5, 9}}},
  };
  for (std::uint32_t number = 0; number < cases.size(); ++number) {
    const MadeSampleId id{StepId(3), number};
    store.put(id, cases[number].first);
    EXPECT_EQ(read(store, id), cases[number].second) << number;
    EXPECT_EQ(store.targets(id), std::ssize(cases[number].first.completion));
    EXPECT_EQ(store.targets(id), std::ranges::count_if(cases[number].second.targets, [](auto t) { return t != none; }));
    EXPECT_EQ(store.length(id), std::ssize(cases[number].second.tokens));
  }
  Tokens longer(5);
  EXPECT_THROW(store.read({StepId(3), 0}, longer, longer), std::invalid_argument);
}

TEST(SampleStore, targets_have_the_log_probabilities_of_their_draws) {
  SampleStore store;
  store.put({StepId(3), 0}, {{1, 2, 3}, {4, 5}, {-0.5F, -2}});
  store.put({StepId(3), 1}, {{1}, {4}, {-1}});
  std::vector<float> sampled(4, 7);
  store.sampled({StepId(3), 0}, sampled);
  EXPECT_EQ(sampled, (std::vector<float>{0, 0, -0.5F, -2}));
  EXPECT_THROW(store.sampled({StepId(3), 1}, sampled), std::invalid_argument);
  EXPECT_THROW(store.sampled({StepId(4), 0}, sampled), std::out_of_range);
  sampled.resize(1);
  store.sampled({StepId(3), 1}, sampled);
  EXPECT_EQ(sampled, std::vector<float>{-1});
  store.put({StepId(3), 2}, {{1}, {4}, {}});
  EXPECT_THROW(store.sampled({StepId(3), 2}, sampled), std::invalid_argument) << "without log-probabilities";
}

TEST(SampleStore, a_sample_is_there_until_its_step_is_dropped) {  // SZ-1
  SampleStore store;
  for (const std::uint64_t step : {1, 2, 3}) {
    for (const std::uint32_t number : {0U, most_made_samples - 1}) store.put({StepId(step), number}, {{1}, {2}, {}});
  }
  store.drop(StepId(2));
  EXPECT_EQ(store.size(), 4U);
  EXPECT_THROW((void)store.length({StepId(2), 0}), std::out_of_range);
  EXPECT_EQ(store.length({StepId(3), most_made_samples - 1}), 1);
  store.clear();
  EXPECT_EQ(store.size(), 0U);
}

TEST(SampleStore, a_sample_that_is_made_again_must_be_the_same) {  // SZ-2
  SampleStore store;
  store.put({StepId(1), 4}, {{1}, {2}, {-0.5F}});
  store.put({StepId(1), 4}, {{1}, {2}, {-0.5F}});
  EXPECT_EQ(store.size(), 1U);
  EXPECT_THROW(store.put({StepId(1), 4}, {{1}, {3}, {-0.5F}}), JobError);
  EXPECT_THROW(store.put({StepId(1), 4}, {{1}, {2}, {-0.25F}}), JobError);
}

}  // namespace
}  // namespace maestro
