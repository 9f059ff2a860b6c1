// SPDX-License-Identifier: Apache-2.0
#include "actors/job/data_source.hpp"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "tests/actors/actor_bench.hpp"

namespace maestro {
namespace {

class DataSourceTest : public ::testing::Test {
 protected:
  [[nodiscard]] static DataConfig config() {
    DataConfig config;
    config.kind = DataKind::synthetic;
    config.sequence = 16;
    return config;
  }
  BatchMetadata ask(std::int64_t validation_samples, std::uint64_t step, Pass pass) {
    const caf::actor source = bench_.spawn<DataSource>(supervisor_, corpus_, Sampler(3, corpus_->samples(Split::train)),
                                                       DataSourceOptions{8, validation_samples});
    return bench_.ask<BatchMetadata>(source, BatchRequest{StepId(step), pass});
  }

  std::shared_ptr<const Corpus> corpus_ = open_corpus(config(), 3);
  std::vector<std::string> failures_;
  testing::ActorBench bench_;
  caf::actor supervisor_ = bench_.stand_in([this](const Failure& failure) { failures_.push_back(failure.message); });
};

/// Throws while it prepares samples, like a corpus that runs out of memory.
class Throwing final : public Corpus {
 public:
  explicit Throwing(std::shared_ptr<const Corpus> real) : real_(std::move(real)) {}
  [[nodiscard]] std::uint64_t samples(Split split) const override { return real_->samples(split); }
  [[nodiscard]] std::int64_t length(Split, SampleId) const override { throw std::bad_alloc(); }
  [[nodiscard]] std::int64_t max_length() const override { return real_->max_length(); }
  [[nodiscard]] std::int64_t vocabulary() const override { return real_->vocabulary(); }
  [[nodiscard]] std::string describe() const override { return real_->describe(); }

 private:
  void read_exact(Split, SampleId, std::span<std::int32_t>, std::span<std::int32_t>) const override {}
  std::shared_ptr<const Corpus> real_;
};

TEST_F(DataSourceTest, an_exception_of_the_corpus_reaches_the_supervisor_with_the_step) {  // RN-1
  corpus_ = std::make_shared<Throwing>(corpus_);
  const caf::actor source = bench_.spawn<DataSource>(supervisor_, corpus_, Sampler(3, corpus_->samples(Split::train)),
                                                     DataSourceOptions{8, 0});
  ::testing::internal::CaptureStdout();
  bench_.send(source, BatchRequest{StepId(7), Pass::train});
  bench_.deliver_all();
  EXPECT_EQ(failures_, std::vector<std::string>{"data source, step 7: out of memory"});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");  // RN-2
}

/// Declares a maximum length that its samples exceed.
class Understating final : public Corpus {
 public:
  explicit Understating(std::shared_ptr<const Corpus> real) : real_(std::move(real)) {}
  [[nodiscard]] std::uint64_t samples(Split split) const override { return real_->samples(split); }
  [[nodiscard]] std::int64_t length(Split split, SampleId sample) const override {
    return real_->length(split, sample);
  }
  [[nodiscard]] std::int64_t max_length() const override { return 15; }
  [[nodiscard]] std::int64_t vocabulary() const override { return real_->vocabulary(); }
  [[nodiscard]] std::string describe() const override { return real_->describe(); }

 private:
  void read_exact(Split, SampleId, std::span<std::int32_t>, std::span<std::int32_t>) const override {}
  std::shared_ptr<const Corpus> real_;
};

TEST_F(DataSourceTest, a_sample_larger_than_the_corpus_said_is_left_out_since_no_buffer_could_hold_it) {
  corpus_ = std::make_shared<Understating>(corpus_);
  const BatchMetadata batch = ask(0, 1, Pass::train);
  EXPECT_TRUE(batch.samples.empty());
  ASSERT_EQ(batch.left_out.size(), 8u);
  EXPECT_NE(batch.left_out[0].find("has 16 positions"), std::string::npos) << batch.left_out[0];
}

/// A corpus with images, some of them damaged. It counts how many threads prepare samples at the same time.
class Seeing final : public Corpus {
 public:
  explicit Seeing(std::shared_ptr<const Corpus> real) : real_(std::move(real)) {}
  [[nodiscard]] std::uint64_t samples(Split split) const override { return real_->samples(split); }
  [[nodiscard]] std::int64_t length(Split split, SampleId sample) const override {
    return real_->length(split, sample);
  }
  [[nodiscard]] std::int64_t max_length() const override { return real_->max_length(); }
  [[nodiscard]] std::int64_t vocabulary() const override { return real_->vocabulary(); }
  [[nodiscard]] std::string describe() const override { return real_->describe(); }
  [[nodiscard]] std::int64_t patch_columns() const override { return 3; }
  [[nodiscard]] Status prepare(Split, SampleId sample) const override {
    const std::lock_guard lock(mutex_);
    threads_.insert(std::this_thread::get_id());
    ++prepared_[sample.value()];
    return sample.value() % 3 == 0 ? Status(Error{ErrorCode::corrupt, "damaged " + std::to_string(sample.value())})
                                   : Status();
  }
  mutable std::mutex mutex_;
  mutable std::set<std::thread::id> threads_;
  mutable std::map<std::uint64_t, int> prepared_;

 private:
  void read_exact(Split, SampleId, std::span<std::int32_t>, std::span<std::int32_t>) const override {}
  std::shared_ptr<const Corpus> real_;
};

TEST_F(DataSourceTest, images_are_prepared_on_several_threads_with_the_same_batches) {
  const auto seeing = std::make_shared<const Seeing>(corpus_), alone = std::make_shared<const Seeing>(corpus_);
  const Sampler sampler(3, corpus_->samples(Split::train));
  const BatchDrawer several(seeing, sampler, 4), one(alone, sampler, 1);
  for (std::uint64_t step = 1; step <= 4; ++step) {
    const BatchMetadata batch = several.training(StepId(step), 32), expected = one.training(StepId(step), 32);
    EXPECT_EQ(batch.left_out, expected.left_out);
    EXPECT_FALSE(batch.left_out.empty());
    EXPECT_EQ(batch.target_tokens, expected.target_tokens);
    ASSERT_EQ(batch.samples.size(), expected.samples.size());
    for (std::size_t at = 0; at < batch.samples.size(); ++at) EXPECT_EQ(batch.samples[at].id, expected.samples[at].id);
  }
  EXPECT_EQ(seeing->prepared_, alone->prepared_);
  EXPECT_FALSE(seeing->threads_.contains(std::this_thread::get_id()));
  EXPECT_EQ(alone->threads_, std::set{std::this_thread::get_id()});
}

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
  for (std::size_t at = 0; at < 5; ++at) {
    EXPECT_EQ(early.samples[at].id.value(), at * all / 5) << "spread over the split";
  }
  EXPECT_EQ(ask(0, 1, Pass::evaluate).samples.size(), all);
  EXPECT_EQ(ask(static_cast<std::int64_t>(all) + 7, 1, Pass::evaluate).samples.size(), all);
}

}  // namespace
}  // namespace maestro
