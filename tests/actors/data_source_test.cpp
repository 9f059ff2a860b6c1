#include "actors/data_source.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tests/actors/actor_bench.hpp"

namespace maestro {
namespace {

class DataSourceTest : public ::testing::Test {
 protected:
  [[nodiscard]] static DataConfig config() {
    DataConfig config;
    config.kind = "synthetic";
    config.sequence = 16;
    return config;
  }
  BatchMetadata ask(std::int64_t validation_samples, std::uint64_t step, Pass pass) {
    const caf::actor source = bench_.spawn<DataSource>(corpus_, Sampler(3, corpus_->samples(Split::train)),
                                                       DataSourceOptions{8, validation_samples});
    return bench_.ask<BatchMetadata>(source, BatchRequest{StepId(step), pass});
  }

  std::shared_ptr<const Corpus> corpus_ = open_corpus(config(), 3);
  testing::ActorBench bench_;
};

TEST_F(DataSourceTest, steps_go_through_the_sampler_without_gap_or_overlap) {
  const Sampler sampler(3, corpus_->samples(Split::train));
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const BatchMetadata batch = ask(0, step, Pass::train);
    EXPECT_EQ(batch.step, StepId(step));
    EXPECT_EQ(batch.pass, Pass::train);
    ASSERT_EQ(batch.samples.size(), 8u);
    std::int64_t tokens = 0;
    for (std::uint64_t at = 0; at < 8; ++at) {
      EXPECT_EQ(batch.samples[at].id, sampler.at((step - 1) * 8 + at));
      EXPECT_EQ(batch.samples[at].tokens, corpus_->length(Split::train, batch.samples[at].id));
      tokens += batch.samples[at].tokens;
    }
    EXPECT_EQ(batch.target_tokens, tokens);
  }
}

TEST_F(DataSourceTest, a_validation_pass_is_the_same_distinct_samples_at_every_step) {
  const std::uint64_t all = corpus_->samples(Split::validation);
  ASSERT_GT(all, 5u);
  const BatchMetadata early = ask(5, 1, Pass::evaluate);
  const BatchMetadata late = ask(5, 9, Pass::evaluate);
  ASSERT_EQ(early.samples.size(), 5u);
  std::set<SampleId> distinct;
  for (std::size_t at = 0; at < 5; ++at) {
    EXPECT_EQ(early.samples[at].id, late.samples[at].id);
    EXPECT_LT(early.samples[at].id.value(), all);
    distinct.insert(early.samples[at].id);
  }
  EXPECT_EQ(distinct.size(), 5u);
  EXPECT_EQ(ask(0, 1, Pass::evaluate).samples.size(), all);
  EXPECT_EQ(ask(static_cast<std::int64_t>(all) + 7, 1, Pass::evaluate).samples.size(), all);
}

}  // namespace
}  // namespace maestro
