// SPDX-License-Identifier: Apache-2.0
// Decoder sections in pipeline stages against the undivided section: losses, gradients, outputs, initial values, work.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/core/result.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/decoder/language_model_head.hpp"
#include "tests/sections/pipeline_bench.hpp"
#include "tests/sections/random_decoder.hpp"

namespace maestro::testing {
namespace {

// As for ranks: sums have another order. Stages by themselves change only the sum for a tied embedding.
constexpr double gradient_tolerance = 1e-5;

DecoderConfig model(DecoderFamily family, bool tied) {
  DecoderConfig config;
  config.family = family;
  config.layers = staged_layers;
  config.width = 32;
  config.heads = 8;
  config.kv_heads = family == DecoderFamily::gpt2 ? 0 : 4;
  config.ffn = 24;
  config.vocabulary = vocabulary;
  config.positions = 12;
  config.tied = tied;
  return with_kinds_of_layers(config);
}

ParallelBench::Build language_model(const DecoderConfig& config) {
  return [config](const SectionContext& context) {
    return std::make_unique<DecoderLm>(context, DecoderLm::Options{config, {}});
  };
}

ParallelBench::Build trunk_of(const DecoderConfig& config, TeacherOutput boundary) {
  return [config, boundary](const SectionContext& context) {
    return std::make_unique<DecoderTrunk>(context, DecoderTrunk::Options{config, boundary, 5, {}});
  };
}

std::vector<std::string> names(const std::vector<Port>& ports) {
  std::vector<std::string> names;
  for (const Port& port : ports) names.push_back(port.name);
  return names;
}

struct Case {
  DecoderFamily family;
  bool tied = false;
  std::int64_t stages = 1;
  Layout layout;
};

class DecoderInStages : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] ParallelBench uncut() const {
    return {{}, bench.context("lm", true), language_model(model(GetParam().family, GetParam().tied))};
  }
  [[nodiscard]] PipelineBench cut() const {
    return {{GetParam().stages, staged_layers, GetParam().layout},
            bench.context("lm", true),
            language_model(model(GetParam().family, GetParam().tied))};
  }
  Bench bench;
};

TEST_P(DecoderInStages, losses_gradients_and_their_norm_are_those_of_the_uncut_section) {
  ParallelBench single = uncut();
  PipelineBench stages = cut();
  randomise(single.section(0), 11);
  stages.load(single.whole());
  for (const Batch& batch : {Batch::random(5, {9, 1, 12}, vocabulary), Batch::random(7, {2, 1}, vocabulary)}) {
    const ParallelPass expected = single.run(batch), found = stages.run(batch);
    ASSERT_EQ(found.metrics.size(), expected.metrics.size());
    for (const MetricSum& metric : expected.metrics) {
      EXPECT_NEAR(found.metric(metric.name).sum, metric.sum, loss_tolerance * metric.sum) << metric.name;
      EXPECT_EQ(found.metric(metric.name).weight, metric.weight) << metric.name;
    }
    // The gradients of a delta rule's decay are sums whose terms cancel; in samples of two rows they are small.
    const bool delta = has_delta_rules(GetParam().family);
    expect_close(stages.whole(ParameterBuffer::gradients), by_name(single.whole(ParameterBuffer::gradients)),
                 delta ? 5 * gradient_tolerance : gradient_tolerance, delta ? 1e-3 : 1e-6);
    const double squares = single.gradient_sum_of_squares();
    EXPECT_GT(squares, 0);
    EXPECT_NEAR(stages.gradient_sum_of_squares(), squares, gradient_tolerance * squares);
  }
}

TEST_P(DecoderInStages, initial_values_are_those_of_the_uncut_section) {  // SE-3
  ParallelBench single = uncut();
  PipelineBench stages = cut();
  expect_same(stages.whole(), by_name(single.whole()));
  for (std::int64_t rank = 0; rank < stages.ranks(); ++rank) {
    for (std::int64_t index = 0; index < stages.stages(); ++index) {
      const bool end = index == 0 || index + 1 == stages.stages();
      EXPECT_EQ(stages.stage(index).section(rank).tied() != nullptr, GetParam().tied && end) << index;
    }
    if (!GetParam().tied) continue;
    const Tensor& first = stages.stage(0).section(rank).tied()->value();
    const Tensor& last = stages.stage(stages.stages() - 1).section(rank).tied()->value();
    ASSERT_EQ(first.shape(), last.shape());
    EXPECT_EQ(largest_difference(first, last), 0);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [family, tied] : {std::pair{DecoderFamily::gpt2, true}, std::pair{DecoderFamily::llama, true},
                                     std::pair{DecoderFamily::llama, false}, std::pair{DecoderFamily::lfm2, true},
                                     std::pair{DecoderFamily::qwen3_5_text, false}}) {
    for (const std::int64_t stages : {2, 3}) {
      for (const Layout layout : {Layout{1, 1}, Layout{2, 1}, Layout{1, 2}, Layout{2, 2}}) {
        all.push_back({family, tied, stages, layout});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(cases, DecoderInStages, ::testing::ValuesIn(cases()), [](const auto& test) {
  const Case& each = test.param;
  return std::string(name_of(each.family)) + (each.tied ? "_tied_" : "_untied_") + std::to_string(each.stages) +
         "_of_" + std::to_string(each.layout.tensor) + "x" + std::to_string(each.layout.context);
});

TEST(DecoderStages, untied_gradients_are_bitwise_those_of_the_uncut_section) {
  Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  for (const DecoderFamily family : {DecoderFamily::gpt2, DecoderFamily::llama}) {
    const auto build = language_model(model(family, false));
    ParallelBench single({}, bench.context("lm", true), build);
    PipelineBench stages({3, staged_layers}, bench.context("lm", true), build);
    EXPECT_EQ(single.run(batch).metric("loss").sum, stages.run(batch).metric("loss").sum);
    expect_same(stages.whole(ParameterBuffer::gradients), by_name(single.whole(ParameterBuffer::gradients)));
  }
}

TEST(DecoderStages, a_tied_embedding_learns_from_both_of_its_uses) {
  Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  PipelineBench stages({2, staged_layers}, bench.context("lm", true), language_model(model(DecoderFamily::gpt2, true)));
  stages.run(batch);
  const double both = stages.gradient_sum_of_squares();
  const Tensor copy = stages.stage(1).section(0).tied()->gradient();
  EXPECT_GT(bench.ops->run(SumOfSquares{.values = copy.span<float>()}), 0);
  std::ranges::fill(copy.span<float>(), 1e6f);
  EXPECT_EQ(stages.gradient_sum_of_squares(), both) << "the last stage leaves its copy out";
}

TEST(DecoderStages, frozen_trunks_give_their_outputs_from_the_last_stage) {
  Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  for (const bool tied : {true, false}) {
    for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::logits, TeacherOutput::top_k}) {
      const auto build = trunk_of(model(DecoderFamily::llama, tied), boundary);
      ParallelBench single({}, bench.context("teacher", false), build);
      PipelineBench stages({3, staged_layers}, bench.context("teacher", false), build);
      PipelineBench ranks({2, staged_layers, {2, 2}}, bench.context("teacher", false), build);
      for (std::int64_t index = 0; index < 3; ++index) {
        Section& stage = stages.stage(index).section(0);
        EXPECT_EQ(stage.tied() != nullptr, tied && boundary != TeacherOutput::hidden && index != 1);
        stage.freeze();
        EXPECT_TRUE(stage.shareable());
      }
      const ParallelPass expected = single.run(batch, Pass::evaluate);
      const ParallelPass found = stages.run(batch, Pass::evaluate), spread = ranks.run(batch, Pass::evaluate);
      ASSERT_FALSE(expected.outputs.empty());
      for (const auto& [name, tensor] : expected.outputs) {
        EXPECT_EQ(worst_error(found.outputs.at(name).values(), tensor.values()), 0) << name;
        const double tolerance = tensor.tensor().dtype() == DType::i32 ? 0 : 1e-5;
        EXPECT_LE(worst_error(spread.outputs.at(name).values(), tensor.values()), tolerance) << name;
      }
    }
  }
}

TEST(DecoderStages, gradients_pass_through_frozen_stages) {
  Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  const auto build = language_model(model(DecoderFamily::gpt2, true));
  SectionContext passing = stage_context(bench.context("lm", false), 1, 3, staged_layers);
  passing.passes_gradient = true;
  ParallelBench trained({}, stage_context(bench.context("lm", true), 1, 3, staged_layers), build);
  ParallelBench frozen({}, passing, build);
  frozen.section(0).freeze();
  Random random(3);
  OwnedTensor stream(DType::f32, {batch.rows(), 32}), gradient(DType::f32, {batch.rows(), 32});
  for (const OwnedTensor* filled : {&stream, &gradient}) {
    for (float& value : filled->tensor().span<float>()) value = static_cast<float>(random.normal());
  }
  const std::vector<Feed> feeds{{"stream", stream, true}};
  const ParallelPass expected = trained.run(batch, Pass::train, feeds, {{"stream", gradient}});
  const ParallelPass found = frozen.run(batch, Pass::train, feeds, {{"stream", gradient}});
  EXPECT_EQ(found.input_gradients.at("stream").values(), expected.input_gradients.at("stream").values());
}

TEST(DecoderStages, only_the_ends_have_the_ports_of_the_section) {  // SE-2
  Bench bench;
  using Names = std::vector<std::string>;
  const std::pair<Names, Names> expected[] = {
      {{"tokens"}, {"stream"}}, {{"stream"}, {"stream"}}, {{"stream", "targets"}, {}}};
  for (std::int64_t index = 0; index < 3; ++index) {
    const SectionContext context = stage_context(bench.context("lm", true, DType::bf16), index, 3, staged_layers);
    const Ports ports = DecoderLm(context, {model(DecoderFamily::gpt2, true), {}}).ports();
    EXPECT_EQ(names(ports.inputs), expected[index].first);
    EXPECT_EQ(names(ports.outputs), expected[index].second);
    const Port& stream = index == 0 ? ports.outputs[0] : ports.inputs[0];
    EXPECT_EQ(stream.dtype, DType::f32);
    EXPECT_EQ(stream.columns, 32);
    EXPECT_EQ(stream.sharding, Sharding::rank_rows);
    EXPECT_TRUE(stream.differentiable);
    EXPECT_FALSE(stream.optional);
  }
}

TEST(DecoderStages, the_work_of_all_stages_is_that_of_the_uncut_section) {
  Bench bench;
  const SampleShape sample{11, 0, 0};
  SectionContext context = bench.context("lm", true, DType::bf16);
  context.meta = true;
  const DecoderConfig config = model(DecoderFamily::llama, true);
  const DecoderLm uncut(context, {config, {}});
  const LayerCosts costs = uncut.layer_costs(sample);
  ASSERT_EQ(costs.layers.size(), static_cast<std::size_t>(staged_layers));
  EXPECT_EQ(costs.before, 0);
  EXPECT_EQ(costs.after, head_flops(11, 32, vocabulary));
  Cost sum;
  for (std::int64_t index = 0; index < 2; ++index) {
    const DecoderLm stage(stage_context(context, index, 2, staged_layers), {config, {}});
    const Cost cost = stage.cost(sample);
    const double ends = index == 0 ? costs.before : costs.after;
    const double own = static_cast<double>(index + 1) * costs.layers[0] + ends;  // one layer, then two
    EXPECT_NEAR(cost.flops, own, 1e-9 * own);
    EXPECT_EQ(stage.layer_costs(sample).layers, costs.layers);
    sum = {sum.flops + cost.flops, sum.bytes + cost.bytes};
  }
  const Cost whole = uncut.cost(sample);
  EXPECT_NEAR(sum.flops, whole.flops, 1e-9 * whole.flops);
  // Both stages keep the stream between them.
  EXPECT_NEAR(sum.bytes, whole.bytes + 11 * 32 * 4, 1e-9 * whole.bytes);
  const DecoderTrunk body(context, {config, TeacherOutput::hidden, 1, {}});
  EXPECT_EQ(body.layer_costs(sample).after, 0);
}

template <class Made>
std::string refusal(const Bench& bench, std::int64_t stages) {
  SectionContext context = bench.context("lm", true);
  context.meta = true;
  context.stage = {0, stages, 0, 1};
  try {
    typename Made::Options options;
    options.decoder = model(DecoderFamily::gpt2, false);
    Made made(context, options);
  } catch (const JobError& error) {
    return error.what();
  }
  return "no error";
}

TEST(DecoderStages, what_cannot_be_cut_is_refused) {
  const Bench bench;
  EXPECT_EQ(refusal<DecoderLm>(bench, 3), "no error");
  EXPECT_EQ(refusal<DecoderLm>(bench, 4),
            "lm.pipeline = 4: 3 layers cannot be cut in 4; nearest that fits: pipeline = 3");
  EXPECT_EQ(refusal<LanguageModelHead>(bench, 1), "no error");
  EXPECT_EQ(refusal<LanguageModelHead>(bench, 2),
            "lm.pipeline = 2: a language_model_head has no layers to cut; leave pipeline at 1");
  SectionContext beyond = bench.context("lm", true);
  beyond.stage = {1, 2, 2, 2};
  EXPECT_THROW(DecoderLm(beyond, {model(DecoderFamily::gpt2, false), {}}), std::invalid_argument);
}

}  // namespace
}  // namespace maestro::testing
