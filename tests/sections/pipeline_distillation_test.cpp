// SPDX-License-Identifier: Apache-2.0
// A student in pipeline stages against the undivided student, for every boundary between teacher and student.
#include <gtest/gtest.h>

#include <cmath>

#include "sections/decoder/decoder_trunk.hpp"
#include "sections/distill/distilled_decoder.hpp"
#include "tests/sections/pipeline_bench.hpp"

namespace maestro::testing {
namespace {

DistilledDecoder::Options options(TeacherOutput boundary) {
  DistilledDecoder::Options options;
  options.decoder.layers = staged_layers;
  options.decoder.width = 32;
  options.decoder.heads = 8;
  options.decoder.ffn = 24;
  options.decoder.vocabulary = vocabulary;
  options.decoder.positions = 12;
  options.teachers[0].boundary = boundary;
  options.temperature = 1.5;
  options.alpha = 0.7;
  options.teachers[0].top_k = 12;
  options.teachers[0].decoder = options.decoder;
  options.teachers[0].decoder.family = DecoderFamily::llama;
  options.teachers[0].decoder.layers = 1;
  options.teachers[0].decoder.width = 24;
  options.teachers[0].decoder.heads = 4;
  options.teachers[0].decoder.tied = false;
  options.teachers[0].decoder.init_std = 0.3;  // so that the teacher prefers some tokens
  options.data = {12, vocabulary, "bytes"};
  return options;
}

using StagedStudentCase = std::tuple<TeacherOutput, std::int64_t, Layout>;
class StudentInStages : public ::testing::TestWithParam<StagedStudentCase> {};

TEST_P(StudentInStages, losses_gradients_and_their_norm_are_those_of_the_uncut_section) {
  const auto& [boundary, count, layout] = GetParam();
  const DistilledDecoder::Options settings = options(boundary);
  Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  ParallelBench teacher({}, bench.context("teacher", false), [&](const SectionContext& context) {
    const DecoderTrunk::Options trunk{
        settings.teachers[0].decoder, settings.teachers[0].boundary, settings.teachers[0].top_k, {}};
    return std::make_unique<DecoderTrunk>(context, trunk);
  });
  const ParallelPass sent = teacher.run(batch, Pass::evaluate);
  std::vector<Feed> feeds;
  for (const auto& [name, tensor] : sent.outputs) feeds.push_back({"teacher_" + name, tensor});

  const auto build = [settings](const SectionContext& context) {
    return std::make_unique<DistilledDecoder>(context, settings);
  };
  ParallelBench single({}, bench.context("student", true), build);
  PipelineBench stages({count, staged_layers, layout}, bench.context("student", true), build);
  expect_same(stages.whole(), by_name(single.whole()));
  randomise(single.section(0), 11);
  stages.load(single.whole());
  const ParallelPass expected = single.run(batch, Pass::train, feeds), found = stages.run(batch, Pass::train, feeds);
  EXPECT_EQ(expected.metrics.size(), settings.teachers[0].boundary == TeacherOutput::top_k ? 3U : 4U);
  EXPECT_EQ(found.metrics.size(), expected.metrics.size());
  for (const auto& [name, sum, weight] : expected.metrics) {
    EXPECT_NEAR(found.metric(name).sum, sum, 1e-6 * std::abs(sum)) << name;
    EXPECT_EQ(found.metric(name).weight, weight) << name;
  }
  expect_close(stages.whole(ParameterBuffer::gradients), by_name(single.whole(ParameterBuffer::gradients)), 1e-5);
  const double squares = single.gradient_sum_of_squares();
  EXPECT_NEAR(stages.gradient_sum_of_squares(), squares, 1e-5 * squares);
}

std::vector<StagedStudentCase> staged_student_cases() {
  std::vector<StagedStudentCase> all;
  for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::logits, TeacherOutput::top_k}) {
    for (const std::int64_t stages : {2, 3}) {
      for (const Layout layout : {Layout{1, 1}, Layout{2, 1}, Layout{1, 2}}) all.emplace_back(boundary, stages, layout);
    }
  }
  return all;
}

std::string staged_student_case_name(const ::testing::TestParamInfo<StagedStudentCase>& test) {
  const auto& [boundary, stages, layout] = test.param;
  const char* boundaries[] = {"hidden", "logits", "top_k"};
  return std::string(boundaries[static_cast<int>(boundary)]) + "_" + std::to_string(stages) + "_of_" +
         std::to_string(layout.tensor) + "x" + std::to_string(layout.context);
}

INSTANTIATE_TEST_SUITE_P(cases, StudentInStages, ::testing::ValuesIn(staged_student_cases()), staged_student_case_name);

TEST(StudentStages, the_teachers_output_layer_and_notes_belong_to_the_last_stage) {
  Bench bench;
  DistilledDecoder::Options settings = options(TeacherOutput::hidden);
  settings.decoder.vocabulary = 53;  // more rows than tokens, which gives a note
  const SampleShape sample{11, 0, 0};
  SectionContext context = bench.context("student", true);
  context.meta = true;
  const DistilledDecoder uncut(context, settings);
  const double teacher = head_flops(11, 24, vocabulary), student = head_flops(11, 32, 53);
  EXPECT_EQ(uncut.layer_costs(sample).after, student + teacher);
  ASSERT_EQ(uncut.notes().size(), 1U);
  const DistilledDecoder first(stage_context(context, 0, 2, staged_layers), settings);
  const DistilledDecoder last(stage_context(context, 1, 2, staged_layers), settings);
  const double layer = uncut.layer_costs(sample).layers[0];
  EXPECT_NEAR(first.cost(sample).flops, layer, 1e-9 * layer);
  EXPECT_NEAR(last.cost(sample).flops, 2 * layer + student + teacher, 1e-9 * layer);
  EXPECT_TRUE(first.notes().empty());
  EXPECT_EQ(last.notes(), uncut.notes());
  ASSERT_EQ(first.ports().inputs.size(), 1U);
  EXPECT_EQ(first.ports().inputs[0].name, "tokens");
  ASSERT_EQ(last.ports().inputs.size(), 3U);
  EXPECT_EQ(last.ports().inputs[2].name, "teacher_hidden");
}

}  // namespace
}  // namespace maestro::testing
