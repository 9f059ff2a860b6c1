// SPDX-License-Identifier: Apache-2.0
// Experts that a hook names in the router's place, and layouts compared with the same experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/ops/expert_functions.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/vision/vision_language_decoder.hpp"
#include "tests/sections/parallel_bench.hpp"
#include "tests/sections/pipeline_bench.hpp"
#include "tests/sections/route_book.hpp"

namespace maestro::testing {
namespace {

// As without experts (parallel_decoder_test.cpp): roundings of 6e-8, since sums have another order.
constexpr double gradient_tolerance = 1e-5;

/// A family with each kind of router.
struct Router {
  const char* name;
  DecoderFamily family;
  LoadBalance balance;
  bool divided = false;  ///< kind sigmoid
};
constexpr Router routers[] = {{"softmax", DecoderFamily::qwen2_moe, LoadBalance::sequence},
                              {"chosen", DecoderFamily::qwen3_moe, LoadBalance::batch},
                              {"sigmoid", DecoderFamily::glm4_moe, LoadBalance::bias},
                              {"divided_sigmoid", DecoderFamily::glm4_moe, LoadBalance::bias, true}};

DecoderConfig model(const Router& router, bool balanced = true) {
  DecoderConfig config;
  config.layers = staged_layers;
  config.width = 32;
  config.heads = 8;
  config.kv_heads = 8;
  config.ffn = 24;
  config.vocabulary = vocabulary;
  config.positions = 16;
  ExpertConfig& experts = config.experts;
  experts.count = 16;
  experts.per_token = 4;
  experts.ffn = experts.shared_ffn = 8;
  experts.dense_layers = {router.family == DecoderFamily::glm4_moe ? 0 : 1};
  if (balanced) {
    experts.balance = router.balance;
    experts.balance_weight = 0.5;
    experts.z_weight = 0.1;
  } else {
    experts.balance = LoadBalance::none;
  }
  if (router.family == DecoderFamily::qwen3_moe) experts.shared_ffn = 0;
  config = with_family(config, router.family);
  if (router.family == DecoderFamily::qwen3_moe) config.experts.router.kind = RouterKind::chosen;
  if (config.experts.router.kind == RouterKind::sigmoid) {
    config.experts.router.scale = 1.5;
    config.experts.router.divided = router.divided;
    config.experts.router.groups = 4;
    config.experts.router.top_groups = 2;
  }
  return config;
}

ParallelBench::Build language_model(const DecoderConfig& config) {
  return [config](const SectionContext& context) {
    return std::make_unique<DecoderLm>(context, DecoderLm::Options{config, {}});
  };
}

Batch samples_of(std::uint64_t seed, const std::vector<std::int32_t>& lengths, std::uint64_t first) {
  Batch batch = Batch::random(seed, lengths, vocabulary);
  for (std::size_t sample = 0; sample < batch.samples.size(); ++sample) {
    batch.samples[sample] = SampleId(first + sample);
  }
  return batch;
}

void expect_metrics(const ParallelPass& found, const ParallelPass& expected) {
  ASSERT_EQ(found.metrics.size(), expected.metrics.size());
  for (const MetricSum& metric : expected.metrics) {
    EXPECT_NEAR(found.metric(metric.name).sum, metric.sum, gradient_tolerance * std::abs(metric.sum)) << metric.name;
    EXPECT_EQ(found.metric(metric.name).weight, metric.weight) << metric.name;
  }
}

class NamedRoutes : public ::testing::TestWithParam<Router> {
 protected:
  [[nodiscard]] ParallelBench on(Layout layout, bool balanced = true, std::int64_t recompute = 0) const {
    SectionContext context = bench.context("lm", true);
    context.recompute = recompute;
    return {layout, context, language_model(model(GetParam(), balanced))};
  }
  /// Returns the gradients of a single rank with the book's experts.
  ParallelPass expected_pass(ParallelBench& single, RouteBook& book, const Batch& batch) {
    single.set_routes(&book);
    return single.run(batch);
  }
  Bench bench;
};

TEST_P(NamedRoutes, are_not_those_of_the_router_and_decide_the_results) {  // XR-1
  const Batch batch = samples_of(5, {9, 1, 12}, 0);
  ParallelBench single = on({});
  randomise(single.section(0), 11);
  RouteBook chosen = RouteBook::of_routers(), drawn = RouteBook::of_chance(3);
  const ParallelPass plain = single.run(batch);
  const ParallelPass recorded = expected_pass(single, chosen, batch);
  EXPECT_EQ(recorded.metric("loss").sum, plain.metric("loss").sum);  // recording changes nothing
  const ParallelPass named = expected_pass(single, drawn, batch);
  EXPECT_GT(drawn.differing(chosen), 0.9);
  EXPECT_GT(std::abs(named.metric("loss").sum - plain.metric("loss").sum), 1e-3 * plain.metric("loss").sum);
  EXPECT_EQ(chosen.rows_taken(), 2 * batch.rows());  // two layers have experts
}

TEST_P(NamedRoutes, have_the_same_losses_and_gradients_on_every_layout) {
  const Batch batch = samples_of(5, {9, 1, 12}, 0);
  ParallelBench single = on({});
  randomise(single.section(0), 11);
  RouteBook book = RouteBook::of_chance(3);
  const ParallelPass expected = expected_pass(single, book, batch);
  book.replay();
  for (const Layout layout :
       {Layout{2, 1}, Layout{4, 1}, Layout{1, 2}, Layout{1, 4}, Layout{2, 2}, Layout{2, 4}, Layout{2, 1, 2},
        Layout{1, 2, 2}, Layout{1, 4, 2}, Layout{4, 1, 2}, Layout{2, 2, 2}, Layout{2, 2, 4}, Layout{2, 4, 8}}) {
    SCOPED_TRACE(std::to_string(layout.tensor) + " x " + std::to_string(layout.context) + ", expert " +
                 std::to_string(layout.expert));
    ParallelBench ranks = on(layout);
    ranks.load(single.whole());
    ranks.set_routes(&book);
    expect_metrics(ranks.run(batch), expected);
    expect_close(ranks.whole(ParameterBuffer::gradients), single.whole(ParameterBuffer::gradients), gradient_tolerance);
    for (const std::int64_t stages : {2, 3}) {
      PipelineBench pipeline({stages, staged_layers, layout}, bench.context("lm", true),
                             language_model(model(GetParam())));
      pipeline.load(single.whole());
      pipeline.set_routes(&book);
      expect_metrics(pipeline.run(batch), expected);
      expect_close(pipeline.whole(ParameterBuffer::gradients), by_name(single.whole(ParameterBuffer::gradients)),
                   gradient_tolerance);
    }
  }
}

TEST_P(NamedRoutes, have_the_same_gradients_when_layers_are_computed_again) {  // DK-1
  const Batch batch = samples_of(5, {9, 1, 12}, 0);
  for (const Layout layout : {Layout{}, Layout{2, 2, 4}}) {
    ParallelBench once = on(layout), again = on(layout, true, 2);
    randomise(once.section(0), 11);
    if (layout.ranks() > 1) once.load(on({}).whole());
    again.load(once.whole());
    RouteBook book = RouteBook::of_chance(3);
    const ParallelPass expected = expected_pass(once, book, batch);
    book.replay();
    again.set_routes(&book);
    EXPECT_EQ(again.run(batch).metric("loss").sum, expected.metric("loss").sum);
    expect_close(again.whole(ParameterBuffer::gradients), once.whole(ParameterBuffer::gradients), 1e-6);
    EXPECT_EQ(book.rows_taken(), 3 * 2 * batch.rows());  // once, and then twice in layers that are computed again
  }
}

TEST_P(NamedRoutes, have_the_same_sum_of_gradients_over_replicas) {
  const Batch batch = samples_of(5, {9, 1, 12, 6}, 0);
  ParallelBench single = on({}, false);
  randomise(single.section(0), 11);
  RouteBook book = RouteBook::of_chance(3);
  const ParallelPass expected = expected_pass(single, book, batch);
  book.replay();
  for (const Layout layout :
       {Layout{1, 1}, Layout{2, 1}, Layout{1, 2}, Layout{2, 2}, Layout{2, 1, 2}, Layout{2, 2, 4}}) {
    TensorSnapshot sum;
    double loss = 0;
    for (const std::size_t first : {0U, 2U}) {  // a replica has two samples; its loss is a mean over their targets
      const auto begin = static_cast<std::size_t>(batch.offsets[first]);
      const auto end = static_cast<std::size_t>(batch.offsets[first + 2]);
      const auto part = [&](const std::vector<std::int32_t>& all) {
        return std::vector<std::int32_t>(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                         all.begin() + static_cast<std::ptrdiff_t>(end));
      };
      const std::int32_t middle = batch.offsets[first + 1] - batch.offsets[first];
      Batch own(part(batch.tokens), part(batch.targets), {0, middle, static_cast<std::int32_t>(end - begin)});
      own.samples = {SampleId(first), SampleId(first + 1)};
      ParallelBench replica = on(layout, false);
      replica.load(single.whole());
      replica.set_routes(&book);
      loss += replica.run(own).metric("loss").sum;
      TensorSnapshot gradients = replica.whole(ParameterBuffer::gradients);
      const double share = own.target_tokens() / batch.target_tokens();
      for (std::size_t i = 0; i < gradients.tensors.size(); ++i) {
        const std::span<float> values = values_in(gradients, gradients.tensors[i]);
        const std::span<float> sums = first == 0 ? values : values_in(sum, sum.tensors[i]);
        for (std::size_t at = 0; at < values.size(); ++at) {
          sums[at] = (first == 0 ? 0 : sums[at]) + static_cast<float>(share) * values[at];
        }
      }
      if (first == 0) sum = std::move(gradients);
    }
    EXPECT_NEAR(loss, expected.metric("loss").sum, gradient_tolerance * loss);
    expect_close(sum, single.whole(ParameterBuffer::gradients), gradient_tolerance);
  }
}

TEST_P(NamedRoutes, of_the_routers_own_choice_change_nothing_but_roundings) {  // XR-1
  const Batch batch = samples_of(5, {9, 1, 12}, 0);
  ParallelBench single = on({}), ranks = on({2, 2}), owners = on({2, 2, 4});
  randomise(single.section(0), 11);
  RouteBook book = RouteBook::of_routers();
  const ParallelPass expected = expected_pass(single, book, batch);
  const TensorSnapshot gradients = single.whole(ParameterBuffer::gradients);
  book.replay();
  expect_metrics(single.run(batch), expected);
  expect_close(single.whole(ParameterBuffer::gradients), gradients, gradient_tolerance);
  for (ParallelBench* const spread : {&ranks, &owners}) {
    spread->load(single.whole());
    spread->set_routes(&book);
    expect_metrics(spread->run(batch), expected);
    expect_close(spread->whole(ParameterBuffer::gradients), gradients, gradient_tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(routers, NamedRoutes, ::testing::ValuesIn(routers),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(NamedRoutesOfImages, are_of_all_rows_if_few_pass_the_last_layer) {
  Bench bench;
  Batch batch = samples_of(5, {9, 1, 12}, 0);
  std::fill(batch.targets.begin() + 3, batch.targets.end(), -1);
  VisionLanguageDecoder decoder(bench.context("decoder", true), {model(routers[1], false), {}, {}});
  randomise(decoder, 11);
  const double loss = evaluate(bench, decoder, batch);
  RouteBook book = RouteBook::of_routers();
  decoder.set_routes(&book);
  EXPECT_NEAR(evaluate(bench, decoder, batch), loss, 1e-6);
  EXPECT_EQ(book.rows_taken(), 2 * batch.rows());
}

TEST(NamedRoutesOfARow, must_be_different_experts_of_the_layer) {
  const Bench bench;
  Arena arena;
  Tape tape(*bench.ops, arena, DType::f32, true);
  const OwnedTensor scores(DType::f32, {2, 4}, Values{1, 2, 3, 4, 5, 6, 7, 8});
  const Var logits = tape.input(scores, true);
  const auto refusal = [&](const std::vector<std::int32_t>& experts) -> std::string {
    try {
      route_to(tape, logits, 2, {}, experts);
    } catch (const ShapeError& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(refusal({3, 0, 1, 2}), "none");
  EXPECT_THAT(refusal({3, 0, 1}), ::testing::HasSubstr("each row must have as many experts"));
  EXPECT_THAT(refusal({3, 0, 1, 4}), ::testing::HasSubstr("the row is 1, an expert is 4"));
  EXPECT_THAT(refusal({3, 0, -1, 1}), ::testing::HasSubstr("an expert is -1"));
  EXPECT_THAT(refusal({3, 3, 1, 2}), ::testing::HasSubstr("the row is 0, an expert is 3"));
}

}  // namespace
}  // namespace maestro::testing
