// SPDX-License-Identifier: Apache-2.0
// A student over ranks against a single rank, for every boundary between teacher and student.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/distill/distilled_decoder.hpp"
#include "tests/sections/parallel_bench.hpp"

namespace maestro::testing {
namespace {

DecoderConfig student_shape(std::int64_t vocabulary) {
  DecoderConfig config;
  config.layers = 1;
  config.width = 32;
  config.heads = 8;
  config.ffn = 24;
  config.vocabulary = vocabulary;
  config.positions = 12;
  return config;
}

DistilledDecoder::Options options(TeacherOutput boundary, Divergence divergence) {
  DistilledDecoder::Options options;
  options.decoder = student_shape(vocabulary);
  options.divergence = divergence;
  options.teachers[0].boundary = boundary;
  options.temperature = 1.5;
  options.alpha = 0.7;
  options.beta = 0.3;
  options.teachers[0].top_k = 12;
  options.teachers[0].decoder = student_shape(vocabulary);
  options.teachers[0].decoder.family = DecoderFamily::llama;
  options.teachers[0].decoder.width = 24;
  options.teachers[0].decoder.heads = 4;
  options.teachers[0].decoder.tied = false;
  options.teachers[0].decoder.init_std = 0.3;  // so that the teacher prefers some tokens
  options.data = {12, vocabulary, "bytes"};
  return options;
}

ParallelBench student(Bench& bench, Layout layout, const DistilledDecoder::Options& settings) {
  return {layout, bench.context("student", true),
          [settings](const SectionContext& context) { return std::make_unique<DistilledDecoder>(context, settings); }};
}

/// A teacher's outputs for a batch on a single rank.
class Teacher {
 public:
  Teacher(Bench& bench, const DistilledDecoder::Options& settings, const Batch& batch)
      : bench_({}, bench.context("teacher", false), [&](const SectionContext& context) {
          const DecoderTrunk::Options trunk{
              settings.teachers[0].decoder, settings.teachers[0].boundary, settings.teachers[0].top_k, {}};
          return std::make_unique<DecoderTrunk>(context, trunk);
        }) {
    if (!settings.teachers[0].weights.empty()) load_weights(bench_.section(0), settings.teachers[0].weights).or_throw();
    sent_ = bench_.run(batch, Pass::evaluate);
  }
  [[nodiscard]] std::vector<Feed> feeds() const {
    std::vector<Feed> feeds;
    for (const auto& [name, tensor] : sent_.outputs) feeds.push_back({"teacher_" + name, tensor});
    return feeds;
  }

 private:
  ParallelBench bench_;
  ParallelPass sent_;
};

void expect_as_on_one_rank(const DistilledDecoder::Options& settings, Layout layout, const Batch& batch) {
  Bench bench;
  const Teacher teacher(bench, settings, batch);
  ParallelBench single = student(bench, {}, settings), ranks = student(bench, layout, settings);
  randomise(single.section(0), 11);
  ranks.load(single.whole());
  const ParallelPass expected = single.run(batch, Pass::train, teacher.feeds());
  const ParallelPass found = ranks.run(batch, Pass::train, teacher.feeds());
  EXPECT_EQ(expected.metrics.size(), settings.teachers[0].boundary == TeacherOutput::top_k ? 3U : 4U);
  EXPECT_EQ(found.metrics.size(), expected.metrics.size());
  for (const auto& [name, sum, weight] : expected.metrics) {
    EXPECT_NEAR(found.metric(name).sum, sum, 1e-6 * std::abs(sum)) << name;
    EXPECT_EQ(found.metric(name).weight, weight) << name;
  }
  expect_close(ranks.whole(ParameterBuffer::gradients), single.whole(ParameterBuffer::gradients), 1e-5);
}

using StudentCase = std::tuple<TeacherOutput, Divergence, Layout>;
class StudentOverRanks : public ::testing::TestWithParam<StudentCase> {};

TEST_P(StudentOverRanks, losses_and_gradients_are_those_of_one_rank) {
  const auto& [boundary, divergence, layout] = GetParam();
  expect_as_on_one_rank(options(boundary, divergence), layout, Batch::random(5, {9, 1, 12}, vocabulary));
  expect_as_on_one_rank(options(boundary, divergence), layout, Batch::random(6, {2}, vocabulary));
}

TEST_P(StudentOverRanks, vocabularies_that_are_padded_differently_line_up) {
  const auto& [boundary, divergence, layout] = GetParam();
  DistilledDecoder::Options settings = options(boundary, divergence);
  settings.decoder.vocabulary = 53;
  settings.decoder.tied = false;
  settings.teachers[0].decoder.vocabulary = 40;
  expect_as_on_one_rank(settings, layout, Batch::random(5, {9, 1, 12}, vocabulary));
}

std::vector<StudentCase> student_cases() {
  std::vector<StudentCase> all;
  for (const Layout layout : {Layout{2, 1}, Layout{1, 2}, Layout{4, 1}, Layout{2, 2}, Layout{4, 2}}) {
    for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::logits, TeacherOutput::top_k}) {
      all.emplace_back(boundary, Divergence::forward_kl, layout);
      if (boundary == TeacherOutput::hidden) all.emplace_back(boundary, Divergence::reverse_kl, layout);
      all.emplace_back(boundary, Divergence::js, layout);
    }
  }
  return all;
}

std::string student_case_name(const ::testing::TestParamInfo<StudentCase>& test) {
  const auto& [boundary, divergence, layout] = test.param;
  const char* boundaries[] = {"hidden", "logits", "top_k"};
  const char* divergences[] = {"forward_kl", "reverse_kl", "js"};
  return std::string(boundaries[static_cast<int>(boundary)]) + "_" + divergences[static_cast<int>(divergence)] + "_" +
         std::to_string(layout.tensor) + "x" + std::to_string(layout.context);
}

INSTANTIATE_TEST_SUITE_P(cases, StudentOverRanks, ::testing::ValuesIn(student_cases()), student_case_name);

TEST(StudentsOverRanks, every_rank_loads_its_part_of_the_teachers_output_layer) {
  for (const char* model : {"gpt2_tied", "llama_untied"}) {
    DistilledDecoder::Options settings = options(TeacherOutput::hidden, Divergence::forward_kl);
    settings.teachers[0].decoder = read_hf_config(reference_folder(model)).value_or_throw();
    settings.teachers[0].weights = reference_folder(model).string();
    settings.decoder.vocabulary = settings.teachers[0].decoder.vocabulary;
    settings.data = {12, settings.decoder.vocabulary, ""};
    expect_as_on_one_rank(settings, {4, 1}, Batch::random(5, {9, 1, 12}, settings.decoder.vocabulary));
  }
}

TEST(StudentsOverRanks, a_teachers_vocabulary_smaller_than_the_tensor_degree_is_refused) {
  Bench bench;
  DistilledDecoder::Options settings = options(TeacherOutput::logits, Divergence::forward_kl);
  settings.data = {12, 3, ""};
  settings.teachers[0].decoder.vocabulary = 3;
  try {
    student(bench, {4, 1}, settings);
    FAIL() << "no error";
  } catch (const JobError& error) {
    EXPECT_STREQ(error.what(),
                 "student.tensor = 4: the teacher's vocabulary of 3 cannot be cut in 4; nearest "
                 "that fits: tensor = 3");
  }
}

}  // namespace
}  // namespace maestro::testing
