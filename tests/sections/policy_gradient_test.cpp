// SPDX-License-Identifier: Apache-2.0
// A student that learns from made samples by the policy gradient, and from read samples by a divergence. The losses of
// rows themselves: tests/ops/policy_loss_test.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/data/corpus.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/distill/distilled_decoder.hpp"
#include "tests/job/job_error.hpp"
#include "tests/ops/owned_tensor.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

constexpr std::int64_t positions = 1100;

DecoderConfig shape(std::int64_t width, double init_std) {
  DecoderConfig config;
  config.layers = 1;
  config.width = width;
  config.heads = 2;
  config.ffn = 24;
  config.vocabulary = vocabulary;
  config.positions = positions;
  config.init_std = init_std;
  return config;
}

DistilledDecoder::Options options(TeacherOutput boundary, std::size_t teachers = 1) {
  DistilledDecoder::Options options;
  options.decoder = shape(16, 0.1);
  options.divergence = Divergence::reverse_kl;
  options.temperature = 1.5;
  options.alpha = 0.7;
  options.policy_gradient = true;
  options.ratio_cap = 1.25;
  options.generates = true;
  options.data = {positions, vocabulary, "bytes"};
  options.teachers.clear();
  for (std::size_t number = 0; number < teachers; ++number) {
    TeacherModel teacher;
    teacher.section = number == 0 ? "teacher" : "other";
    teacher.decoder = shape(24, 0.3);
    teacher.boundary = boundary;
    teacher.weight = number == 0 ? 3 : 1;
    options.teachers.push_back(teacher);
  }
  return options;
}

/// Returns the batch with the samples of `made` made.
Batch with_made(Batch batch, const std::vector<bool>& made) {
  for (std::uint32_t sample = 0; sample < made.size(); ++sample) {
    if (made[sample]) batch.samples[sample] = sample_id({StepId(2), sample});
  }
  return batch;
}

/// Returns the samples [first, first + count) of a batch.
Batch part_of(const Batch& all, std::size_t first, std::size_t count) {
  const auto begin = all.offsets[first], end = all.offsets[first + count];
  std::vector<std::int32_t> offsets;
  for (std::size_t at = first; at <= first + count; ++at) offsets.push_back(all.offsets[at] - begin);
  Batch part({all.tokens.begin() + begin, all.tokens.begin() + end},
             {all.targets.begin() + begin, all.targets.begin() + end}, offsets);
  for (std::size_t at = 0; at < count; ++at) part.samples[at] = all.samples[first + at];
  return part;
}

/// Figures and gradients of the student's pass, summed over targets.
struct Learned {
  std::map<std::string, MetricSum> figures;
  std::vector<double> gradient;

  [[nodiscard]] double mean(const std::string& name) const { return figures.at(name).sum / figures.at(name).weight; }
  Learned& operator+=(const Learned& more) {
    for (const auto& [name, figure] : more.figures) {
      figures[name].sum += figure.sum;
      figures[name].weight += figure.weight;
    }
    gradient.resize(more.gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += more.gradient[i];
    return *this;
  }
};

class PolicyGradient : public ::testing::Test {
 protected:
  /// Runs teachers and student over a batch. `noise`: teachers' hidden states of rows without target are overwritten.
  Learned learn(const DistilledDecoder::Options& settings, const Batch& part, Pass pass = Pass::train,
                bool noise = false) {
    DistilledDecoder student(bench.context("student", true), settings);
    randomise(student, 11);
    std::ranges::fill(student.parameters().gradients(), 0.0F);
    MicroBatch learned(bench, student, part, pass);
    std::vector<std::unique_ptr<DecoderTrunk>> trunks;
    std::vector<std::unique_ptr<MicroBatch>> passes;
    for (const TeacherModel& teacher : settings.teachers) {
      trunks.push_back(std::make_unique<DecoderTrunk>(
          bench.context(teacher.section, false),
          DecoderTrunk::Options{teacher.decoder, teacher.boundary, 1, settings.data, settings.temperature}));
      passes.push_back(std::make_unique<MicroBatch>(bench, *trunks.back(), part, pass));
      passes.back()->forward();
      const std::string port = trunks.back()->ports().outputs.front().name;
      const Tensor sent = passes.back()->output(port);
      for (std::int64_t row = 0; row < part.rows() && noise; ++row) {
        if (part.targets[static_cast<std::size_t>(row)] == ignored_target)
          std::ranges::fill(sent.row_slice(row, 1).span<float>(), 7.0F);
      }
      learned.connect((settings.teachers.size() > 1 ? teacher.section : "teacher") + "_" + port, sent);
    }
    OwnedTensor drawn(DType::f32, Shape{part.rows(), 1});
    for (std::int64_t row = 0; row < part.rows(); ++row) {
      drawn.set(row, -3.6 + 0.25 * (part.tokens[static_cast<std::size_t>(row)] % 5));
    }
    learned.connect("sampled", drawn);
    learned.forward();
    Learned found;
    for (const char* name : {"loss", "ce", "kl", "kl_read", "teacher_ce", "sampled_nll", "ratio_mean", "ratio_capped",
                             "kl_teacher", "kl_other", "kl_read_teacher"}) {
      try {
        found.figures[name] = learned.metric_sum(name);
      } catch (const std::out_of_range&) {  // not reported
      }
    }
    if (pass != Pass::train) return found;
    learned.backward();
    for (const float value : student.parameters().gradients()) found.gradient.push_back(part.target_tokens() * value);
    return found;
  }

  /// `tolerance`: of the loss; gradients are f32 sums over the rows, for which it is five times as large.
  static void expect_close(const Learned& found, const Learned& wanted, double tolerance) {
    EXPECT_NEAR(found.mean("loss"), wanted.mean("loss"), tolerance * std::abs(wanted.mean("loss")));
    double largest = 0;
    for (const double value : wanted.gradient) largest = std::max(largest, std::abs(value));
    ASSERT_GT(largest, 0);
    ASSERT_EQ(found.gradient.size(), wanted.gradient.size());
    for (std::size_t i = 0; i < wanted.gradient.size(); ++i) {
      ASSERT_NEAR(found.gradient[i], wanted.gradient[i], 5 * tolerance * largest) << i;
    }
  }

  Bench bench;
  Batch batch = Batch::random(5, {9, 3, 12}, vocabulary);
};

TEST_F(PolicyGradient, all_boundaries_teach_made_samples_alike) {
  const Batch made = with_made(batch, {true, true, true});
  const Learned hidden = learn(options(TeacherOutput::hidden), made);
  EXPECT_GT(hidden.mean("ratio_capped"), 0);
  EXPECT_LT(hidden.mean("ratio_capped"), 1);
  for (const TeacherOutput boundary : {TeacherOutput::logits, TeacherOutput::sampled}) {
    const Learned other = learn(options(boundary), made);
    expect_close(other, hidden, 1e-5);
    for (const char* name : {"kl", "sampled_nll", "ratio_mean", "ratio_capped"}) {
      EXPECT_NEAR(other.mean(name), hidden.mean(name), 1e-5) << name;
    }
  }
}

TEST_F(PolicyGradient, made_and_read_samples_of_a_micro_batch_have_their_own_losses_and_figures) {
  for (const bool policy : {true, false}) {
    auto settings = options(TeacherOutput::hidden);
    settings.policy_gradient = policy;
    const Learned mixed = learn(settings, with_made(batch, {true, false, true}));
    Learned apart = learn(settings, with_made(part_of(batch, 0, 1), {true}));
    apart += learn(settings, with_made(part_of(batch, 2, 1), {true}));
    const Learned read = learn(settings, part_of(batch, 1, 1));
    apart += read;
    expect_close(mixed, apart, 1e-5);
    EXPECT_EQ(mixed.figures.size(), policy ? 8U : 6U);
    for (const auto& [name, figure] : mixed.figures) {
      EXPECT_NEAR(figure.sum, apart.figures.at(name).sum, 1e-5 * std::abs(figure.sum)) << name;
      EXPECT_EQ(figure.weight, apart.figures.at(name).weight) << name;
    }
    settings.generates = false;  // the same pass without a generator
    const Learned plain = learn(settings, part_of(batch, 1, 1));
    EXPECT_EQ(read.figures.at("kl_read").sum, plain.figures.at("kl").sum);
    EXPECT_EQ(read.figures.at("ce").sum, plain.figures.at("ce").sum);
    EXPECT_EQ(read.figures.at("loss").sum, plain.figures.at("loss").sum);
  }
}

TEST_F(PolicyGradient, the_loss_is_a_mean_over_all_made_tokens_however_the_batch_is_cut) {
  const Batch long_and_short = with_made(Batch::random(6, {10, 1000, 300}, vocabulary), {true, true, true});
  for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::sampled}) {
    const auto settings = options(boundary);
    const Learned whole = learn(settings, long_and_short);
    Learned single, pair = learn(settings, part_of(long_and_short, 0, 2));
    std::vector<double> means;
    for (std::size_t sample = 0; sample < 3; ++sample) {
      const Learned one = learn(settings, part_of(long_and_short, sample, 1));
      means.push_back(one.mean("loss"));
      single += one;
    }
    pair += learn(settings, part_of(long_and_short, 2, 1));
    for (const Learned* cut : {&single, &pair}) {
      EXPECT_EQ(cut->figures.at("loss").weight, long_and_short.target_tokens());
      expect_close(*cut, whole, 1e-6);
    }
    EXPECT_GT(std::abs((means[0] + means[1] + means[2]) / 3 - whole.mean("loss")), 1e-3) << "a mean of means differs";
  }
}

TEST_F(PolicyGradient, several_teachers_share_the_advantage_by_their_weights) {
  const Batch made = with_made(batch, {true, true, true});
  for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::sampled}) {
    const auto settings = options(boundary, 2);
    const Learned both = learn(settings, made);
    Learned wanted;
    double kl = 0;
    for (std::size_t number = 0; number < 2; ++number) {
      auto alone = settings;
      alone.teachers = {settings.teachers[number]};
      Learned one = learn(alone, made);
      const double share = number == 0 ? 0.75 : 0.25;
      EXPECT_EQ(both.figures.at(number == 0 ? "kl_teacher" : "kl_other").sum, one.figures.at("kl").sum);
      kl += share * one.mean("kl");
      one.figures.at("loss").sum *= share;
      one.figures.at("loss").weight *= share;
      for (double& value : one.gradient) value *= share;
      wanted += one;
    }
    expect_close(both, wanted, 1e-5);
    EXPECT_NEAR(both.mean("kl"), kl, 1e-6);
  }
}

TEST_F(PolicyGradient, teachers_rows_of_the_prompt_change_nothing) {
  Batch made = with_made(batch, {true, true, true});
  std::fill_n(made.targets.begin(), 5, ignored_target);
  const Learned wanted = learn(options(TeacherOutput::hidden), made);
  const Learned found = learn(options(TeacherOutput::hidden), made, Pass::train, true);
  EXPECT_EQ(found.figures.at("loss").sum, wanted.figures.at("loss").sum);
  EXPECT_EQ(found.gradient, wanted.gradient);
}

TEST_F(PolicyGradient, validation_with_sampled_log_probabilities_has_cross_entropies_alone) {
  const Learned dense = learn(options(TeacherOutput::hidden), batch, Pass::evaluate);
  const Learned sampled = learn(options(TeacherOutput::sampled), batch, Pass::evaluate);
  EXPECT_EQ(dense.figures.size(), 4U);    // loss, ce, kl, teacher_ce
  EXPECT_EQ(sampled.figures.size(), 3U);  // no kl
  EXPECT_NEAR(sampled.mean("ce"), dense.mean("ce"), 1e-6);
  EXPECT_NEAR(sampled.mean("teacher_ce"), dense.mean("teacher_ce"), 1e-6);
  EXPECT_EQ(sampled.mean("loss"), sampled.mean("ce"));
}

TEST_F(PolicyGradient, made_samples_without_a_teacher_teach_nothing) {
  auto settings = options(TeacherOutput::hidden, 2);
  DistilledDecoder student(bench.context("student", true), settings);
  const Batch made = with_made(batch, {true, true, true});
  MicroBatch pass(bench, student, made);
  OwnedTensor drawn(DType::f32, Shape{made.rows(), 1});
  pass.connect("sampled", drawn);
  std::ranges::fill(student.parameters().gradients(), 0.0F);
  pass.forward().backward();
  EXPECT_EQ(pass.metric_sum("loss").sum, 0);
  for (const float value : student.parameters().gradients()) ASSERT_EQ(value, 0);
}

TEST_F(PolicyGradient, what_it_does_not_work_with_is_refused) {
  const auto refusal = [&](const DistilledDecoder::Options& settings) {
    return job_error_of([&] { DistilledDecoder(bench.context("student", true), settings); });
  };
  auto settings = options(TeacherOutput::top_k);
  settings.divergence = Divergence::forward_kl;
  settings.teachers[0].top_k = 6;
  EXPECT_NE(refusal(settings).find("loss = \"policy_gradient\" needs the teacher's probability of each sampled token"),
            std::string::npos);
  settings = options(TeacherOutput::sampled);
  settings.policy_gradient = false;
  EXPECT_NE(refusal(settings).find("boundary = \"sampled\" only has the teacher's probability of the sampled token"),
            std::string::npos);
  settings = options(TeacherOutput::sampled, 2);
  settings.teachers[1].boundary = TeacherOutput::hidden;
  EXPECT_NE(refusal(settings).find("set it for all or none"), std::string::npos);
  SectionContext context = bench.context("teacher", false);
  context.meta = context.for_cuda = true;
  DecoderTrunk::Options trunk{shape(64, 0.1), TeacherOutput::sampled, 1, {positions, vocabulary, "bytes"}};
  EXPECT_NE(job_error_of([&] { DecoderTrunk(context, trunk); }).find("\"sampled\" is supported on CPUs only"),
            std::string::npos);
}

}  // namespace
}  // namespace maestro::testing
