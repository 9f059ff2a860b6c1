// SPDX-License-Identifier: Apache-2.0
// The decoder that reads images, in pipeline stages against the undivided decoder.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"
#include "tests/sections/pipeline_bench.hpp"
#include "tests/sections/vision_images.hpp"

namespace maestro::testing {
namespace {

constexpr std::int64_t width = 32;

DecoderConfig model_with_eyes(DecoderFamily family) {
  DecoderConfig config = tiny_decoder(family);
  config.layers = staged_layers;
  config.width = width;
  config.heads = 8;
  config.kv_heads = family == DecoderFamily::llama ? 4 : 0;
  config.vocabulary = vocabulary;
  return config;
}

ParallelBench::Build decoder_of(DecoderFamily family, std::int64_t taps = 0, ImageMask mask = ImageMask::causal) {
  return [family, taps, mask](const SectionContext& context) {
    VisionLanguageDecoder::Options options{model_with_eyes(family), {{}, taps}, {}};
    options.decoder.image_mask = mask;
    return std::make_unique<VisionLanguageDecoder>(context, options);
  };
}

OwnedTensor random_visual(std::int64_t rows, unsigned seed = 3) {
  std::mt19937 generator(seed);
  return {DType::f32, {rows, width}, exact_normals(generator, rows * width)};
}

void expect_equal_metrics(const ParallelPass& found, const ParallelPass& expected) {
  ASSERT_EQ(found.metrics.size(), expected.metrics.size());
  for (const MetricSum& metric : expected.metrics) {
    EXPECT_NEAR(found.metric(metric.name).sum, metric.sum, 1e-6 * metric.sum) << metric.name;
    EXPECT_EQ(found.metric(metric.name).weight, metric.weight) << metric.name;
  }
}

using StagedVisionCase = std::tuple<DecoderFamily, std::int64_t, Layout>;

class DecoderWithEyesInStages : public ::testing::TestWithParam<StagedVisionCase> {
 protected:
  void expect_equal(const Batch& given, const std::vector<Feed>& feeds, std::int64_t taps = 0,
                    ImageMask mask = ImageMask::causal) {
    const auto& [family, count, layout] = GetParam();
    ParallelBench single({}, bench.context("decoder", true), decoder_of(family, taps, mask));
    PipelineBench stages({count, staged_layers, layout}, bench.context("decoder", true),
                         decoder_of(family, taps, mask));
    expect_same(stages.whole(), by_name(single.whole()));
    randomise(single.section(0), 11);
    stages.load(single.whole());
    const ParallelPass expected = single.run(given, Pass::train, feeds);
    const ParallelPass found = stages.run(given, Pass::train, feeds);
    expect_equal_metrics(found, expected);
    expect_close(stages.whole(ParameterBuffer::gradients), by_name(single.whole(ParameterBuffer::gradients)), 1e-5);
    const double squares = single.gradient_sum_of_squares();
    EXPECT_NEAR(stages.gradient_sum_of_squares(), squares, 1e-5 * squares);
    ASSERT_EQ(found.input_gradients.size(), expected.input_gradients.size());
    for (const auto& [name, gradient] : expected.input_gradients) {
      EXPECT_LE(worst_error(found.input_gradients.at(name).values(), gradient.values(), 1e-6), 1e-5) << name;
    }
    expect_equal_metrics(stages.run(given, Pass::evaluate, feeds), single.run(given, Pass::evaluate, feeds));
  }
  Bench bench;
  Pictures pictures = Pictures::random(4, {{{2, 3}, {1, 2}}, {}, {{3, 3}}, {{1, 1}, {2, 2}}}, 2);
  Batch batch = illustrated(pictures, 7, vocabulary);
};

TEST_P(DecoderWithEyesInStages, losses_matches_and_gradients_are_those_of_the_uncut_section) {  // VD-6
  const OwnedTensor visual = random_visual(pictures.rows());
  expect_equal(batch, {{"visual", visual, true}});
  expect_equal(Batch::random(5, {9, 1, 12}, vocabulary), {});  // visual is not connected
}

TEST_P(DecoderWithEyesInStages, rows_for_further_layers_go_to_the_stages_of_these_layers) {  // IP-1
  const OwnedTensor visual = random_visual(pictures.rows());
  std::vector<Feed> feeds{{"visual", visual, true}};
  constexpr std::int64_t taps = staged_layers - 1;
  std::vector<OwnedTensor> rows;
  for (unsigned tap = 0; tap < taps; ++tap) rows.push_back(random_visual(pictures.rows(), 20 + tap));
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    feeds.push_back({tap_name("visual", tap), rows[static_cast<std::size_t>(tap)], true});
  }
  expect_equal(batch, feeds, taps);
  expect_equal(Batch::random(5, {9, 1, 12}, vocabulary), {}, taps);
}

TEST_P(DecoderWithEyesInStages, every_stage_has_the_marks) {  // IP-3
  const OwnedTensor visual = random_visual(pictures.rows());
  const std::vector<std::int32_t> marks = marks_of(batch, {.mask = ImageMask::images});
  expect_equal(batch, {{"visual", visual, true}, {"marks", mark_tensor(marks)}}, 0, ImageMask::images);
}

TEST_P(DecoderWithEyesInStages, a_micro_batch_without_targets_goes_through_and_nothing_learns) {  // VD-3, VD-6
  const auto& [family, count, layout] = GetParam();
  std::ranges::fill(batch.targets, ignored_target);
  const OwnedTensor visual = random_visual(pictures.rows());
  PipelineBench stages({count, staged_layers, layout}, bench.context("decoder", true), decoder_of(family));
  const ParallelPass found = stages.run(batch, Pass::train, {{"visual", visual, true}});
  EXPECT_EQ(found.metric("loss").weight, 0);
  EXPECT_EQ(stages.gradient_sum_of_squares(), 0);
  for (const double value : found.input_gradients.at("visual").values()) ASSERT_EQ(value, 0);
}

std::string staged_vision_case_name(const ::testing::TestParamInfo<StagedVisionCase>& test) {
  const auto& [family, stages, layout] = test.param;
  return std::string(name_of(family)) + "_" + std::to_string(stages) + "_of_" + std::to_string(layout.tensor) + "x" +
         std::to_string(layout.context);
}

INSTANTIATE_TEST_SUITE_P(cases, DecoderWithEyesInStages,
                         ::testing::Combine(::testing::Values(DecoderFamily::gpt2, DecoderFamily::llama),
                                            ::testing::Values(2, 3),
                                            ::testing::Values(Layout{1, 1}, Layout{2, 1}, Layout{1, 2}, Layout{2, 2})),
                         staged_vision_case_name);

TEST(VisionStages, rows_for_further_layers_change_the_loss_and_are_the_same_if_layers_are_computed_again) {
  Bench bench;
  const Pictures pictures = Pictures::random(4, {{{2, 3}}, {{1, 2}}}, 2);
  const Batch batch = illustrated(pictures, 7, vocabulary);
  const OwnedTensor visual = random_visual(pictures.rows()), more = random_visual(pictures.rows(), 5);
  const OwnedTensor none(DType::f32, {pictures.rows(), width});
  const auto run = [&](std::int64_t taps, const OwnedTensor& added, std::int64_t recompute) {
    SectionContext context = bench.context("decoder", true);
    context.recompute = recompute;
    ParallelBench decoder({}, context, decoder_of(DecoderFamily::llama, taps));
    randomise(decoder.section(0), 11);
    std::vector<Feed> feeds{{"visual", visual, true}};
    if (taps > 0) feeds.push_back({"visual_1", added, true});
    return std::pair(decoder.run(batch, Pass::train, feeds), decoder.gradient_sum_of_squares());
  };
  const auto [plain, norm] = run(0, none, 0);
  EXPECT_NEAR(run(1, none, 0).first.metric("loss").sum, plain.metric("loss").sum, 1e-5) << "rows of zeros";
  const auto [added, squares] = run(1, more, 0);
  EXPECT_GT(std::abs(added.metric("loss").sum - plain.metric("loss").sum), 1e-3);
  for (const std::int64_t layers : {1, 2}) {
    const auto [again, same] = run(1, more, layers);
    EXPECT_EQ(again.metric("loss").sum, added.metric("loss").sum);
    EXPECT_EQ(same, squares);
    EXPECT_EQ(again.input_gradients.at("visual_1").values(), added.input_gradients.at("visual_1").values());
  }
  EXPECT_THROW(run(staged_layers, more, 0), JobError);
}

class EncoderInStages : public ::testing::TestWithParam<std::tuple<std::int64_t, Layout>> {};

TEST_P(EncoderInStages, features_and_gradients_are_those_of_the_uncut_section) {  // VE-1 to VE-5
  const auto& [count, layout] = GetParam();
  const Bench bench;
  VisionConfig table = tiny_vision(PatchPositions::learned);
  table.heads = 4;
  table.layers = staged_layers;
  VisionConfig windowed = table;
  windowed.positions = PatchPositions::none;
  windowed.rope_theta = 10000;
  windowed.window = 2;
  windowed.full_layers = {1};
  windowed.taps = {0, 1};
  const Pictures pictures = Pictures::random(4, {{{2, 3}, {3, 3}}, {}, {{3, 3}}, {{1, 1}, {2, 2}}}, 2);
  const std::vector<Feed> feeds{{"pixels", pictures.pixel_tensor()}, {"places", pictures.place_tensor()}};
  for (const VisionConfig& config : {table, windowed}) {
    for (const std::int64_t recompute : {0, 1}) {
      const ParallelBench::Build build = [&config](const SectionContext& context) {
        return std::make_unique<VisionEncoder>(context, VisionEncoder::Options{config, {}});
      };
      SectionContext context = bench.context("vision", true);
      context.recompute = recompute;
      ParallelBench single({}, context, build);
      PipelineBench stages({count, staged_layers, layout}, context, build);
      expect_same(stages.whole(), by_name(single.whole()));
      randomise(single.section(0), 11);
      stages.load(single.whole());
      std::vector<OwnedTensor> seeds;
      for (unsigned at = 0; at < 3; ++at) {
        std::mt19937 generator(at);
        seeds.emplace_back(DType::f32, Shape{pictures.rows(), 16}, exact_normals(generator, pictures.rows() * 16));
      }
      std::map<std::string, Tensor> gradients{{"features", seeds[0]}};
      if (!config.taps.empty()) gradients.insert({{"features_1", seeds[1]}, {"features_2", seeds[2]}});
      const ParallelPass expected = single.run(pictures.batch(), Pass::train, feeds, gradients);
      const ParallelPass found = stages.run(pictures.batch(), Pass::train, feeds, gradients);
      const OwnedTensor& features = found.outputs.at("features");
      EXPECT_LE(worst_error(features.values(), expected.outputs.at("features").values(), 1e-6), 1e-5);
      const double squares = single.gradient_sum_of_squares();
      EXPECT_GT(squares, 0);
      EXPECT_NEAR(stages.gradient_sum_of_squares(), squares, 1e-5 * squares);
      expect_close(stages.whole(ParameterBuffer::gradients), by_name(single.whole(ParameterBuffer::gradients)), 1e-5,
                   std::sqrt(squares) * 1e-2);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(cases, EncoderInStages,
                         ::testing::Combine(::testing::Values(2, 3), ::testing::Values(Layout{1, 1}, Layout{2, 1})),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "_stages_tensor_" +
                                  std::to_string(std::get<1>(test.param).tensor);
                         });

TEST(VisionStages, the_work_of_an_encoders_stages_is_that_of_the_uncut_section) {
  const Bench bench;
  const SampleShape sample{.tokens = 20, .patches = 18, .visual = 8, .images = 2};
  VisionConfig config = tiny_vision(PatchPositions::grid);
  config.layers = staged_layers;
  config.window = 2;
  config.full_layers = {2};
  const auto flops = [&](std::int64_t index, std::int64_t count) {
    SectionContext context = stage_context(bench.context("vision", true), index, count, staged_layers);
    context.meta = true;
    return VisionEncoder(context, {config, {}}).cost(sample).flops;
  };
  SectionContext context = bench.context("vision", true);
  context.meta = true;
  const LayerCosts costs = VisionEncoder(context, {config, {}}).layer_costs(sample);
  ASSERT_EQ(costs.layers.size(), 3U);
  EXPECT_EQ(costs.layers[0], costs.layers[1]);
  EXPECT_LT(costs.layers[1], costs.layers[2]);
  EXPECT_NEAR(flops(0, 3), costs.before + costs.layers[0], 1e-9 * costs.before);
  EXPECT_NEAR(flops(2, 3), costs.layers[2], 1e-9 * costs.before);
  EXPECT_NEAR(flops(0, 2) + flops(1, 2), flops(0, 1), 1e-9 * flops(0, 1));
}

TEST(VisionStages, tokens_and_images_go_to_the_first_stage_and_targets_to_the_last) {  // VD-6, SE-2
  const Bench bench;
  const auto names = [&](std::int64_t index, std::int64_t count, std::int64_t taps = 0,
                         ImageMask mask = ImageMask::causal) {
    std::vector<std::string> both;
    const SectionContext context = stage_context(bench.context("decoder", true), index, count, staged_layers);
    const Ports ports = decoder_of(DecoderFamily::gpt2, taps, mask)(context)->ports();
    for (const auto* side : {&ports.inputs, &ports.outputs}) {
      for (const Port& port : *side) both.push_back(port.name);
    }
    return both;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(0, 1), (Names{"tokens", "targets", "visual"}));
  EXPECT_EQ(names(0, 3), (Names{"tokens", "visual", "stream"}));
  EXPECT_EQ(names(1, 3), (Names{"stream", "stream"}));
  EXPECT_EQ(names(2, 3), (Names{"stream", "targets"}));
  EXPECT_EQ(names(0, 2, 1), (Names{"tokens", "visual", "visual_1", "stream"}));
  EXPECT_EQ(names(1, 2, 1), (Names{"stream", "targets"}));
  const Names last = names(staged_layers - 1, staged_layers, staged_layers - 1);
  EXPECT_EQ(last, (Names{"stream", "targets"}));
  const Names middle = names(1, staged_layers, staged_layers - 1);
  EXPECT_EQ(middle, (Names{"stream", "tokens", "visual_2", "stream"}));
  EXPECT_EQ(names(0, 3, 0, ImageMask::images), (Names{"tokens", "visual", "marks", "stream"}));
  EXPECT_EQ(names(1, 3, 0, ImageMask::images), (Names{"stream", "marks", "stream"}));
  EXPECT_EQ(names(2, 3, 0, ImageMask::images), (Names{"stream", "targets", "marks"}));
}

TEST(VisionStages, the_work_of_all_stages_is_that_of_the_uncut_section_and_the_last_layer_is_cheaper) {
  const Bench bench;
  const SampleShape sample{.tokens = 20, .patches = 8, .visual = 8, .images = 1};
  for (const Layout layout : {Layout{1, 1}, Layout{2, 1}}) {
    SectionContext context = bench.context("decoder", true);
    context.meta = true;
    context.parallel.layout = layout;
    const auto uncut = decoder_of(DecoderFamily::llama)(context);
    const LayerCosts costs = uncut->layer_costs(sample);
    EXPECT_EQ(costs.layers[2] < costs.layers[1], layout.tensor == 1);
    EXPECT_EQ(costs.after, head_flops(12, width, vocabulary));
    double sum = 0;
    for (std::int64_t index = 0; index < 2; ++index) {
      const double flops =
          decoder_of(DecoderFamily::llama)(stage_context(context, index, 2, staged_layers))->cost(sample).flops;
      const double own = index == 0 ? costs.layers[0] : costs.layers[1] + costs.layers[2] + costs.after;
      EXPECT_NEAR(flops, own, 1e-9 * own);
      sum += flops;
    }
    EXPECT_NEAR(sum, uncut->cost(sample).flops, 1e-9 * sum);
  }
}

template <class Made>
std::string refusal(const Bench& bench, const typename Made::Options& options, std::int64_t stages) {
  SectionContext context = bench.context("part", true);
  context.meta = true;
  context.stage = {0, stages, 0, 1};
  try {
    Made made(context, options);
  } catch (const JobError& error) {
    return error.what();
  }
  return "no error";
}

TEST(VisionStages, an_encoder_has_no_more_stages_than_layers_and_a_projector_cannot_be_cut) {
  const Bench bench;
  EXPECT_EQ(refusal<VisionEncoder>(bench, {tiny_vision(PatchPositions::grid), {}}, 2), "no error");
  EXPECT_EQ(refusal<VisionEncoder>(bench, {tiny_vision(PatchPositions::grid), {}}, 3),
            "part.pipeline = 3: 2 layers cannot be cut in 3; nearest that fits: pipeline = 2");
  EXPECT_EQ(refusal<Projector>(bench, {{16, width, 0.02}, {}, {}}, 1), "no error");
  EXPECT_EQ(refusal<Projector>(bench, {{16, width, 0.02}, {}, {}}, 2),
            "part.pipeline = 2: a projector has no layers to cut; leave pipeline at 1");
}

}  // namespace
}  // namespace maestro::testing
