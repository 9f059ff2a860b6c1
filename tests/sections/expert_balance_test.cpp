// SPDX-License-Identifier: Apache-2.0
// Losses that keep the experts busy: values and gradients against their definition, and the same under layouts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/expert_balance.hpp"
#include "tests/sections/parallel_bench.hpp"
#include "tests/sections/pipeline_bench.hpp"

namespace maestro::testing {
namespace {

DecoderConfig with_balance() {
  DecoderConfig config;
  config.layers = 3;
  config.width = 32;
  config.heads = config.kv_heads = 4;
  config.ffn = 24;
  config.vocabulary = vocabulary;
  config.positions = 12;
  config.experts.count = 6;
  config.experts.ffn = 8;
  config.experts.dense_layers = {1};
  config.experts.balance_weight = 0.5;
  config.experts.z_weight = 0.1;
  return with_family(config, DecoderFamily::qwen3_moe);
}

ParallelBench::Build language_model(const DecoderConfig& config) {
  return [config](const SectionContext& context) {
    return std::make_unique<DecoderLm>(context, DecoderLm::Options{config, {}});
  };
}

TEST(ExpertBalance, gradients_are_the_differences_of_the_definition) {
  constexpr std::int64_t rows = 9, experts = 5, chosen = 2;
  const std::vector<std::int32_t> offsets{0, 4, 9}, positions(rows);
  const std::vector<SampleId> samples{SampleId(0), SampleId(1)};
  constexpr double weight = 0.7, z_weight = 0.3, scale = 1.0 / rows;
  std::mt19937 random(5);
  const Values scores = exact_normals(random, rows * experts);
  const cpu::CpuOperatorTable ops;
  Arena arena;
  Tape tape(ops, arena, DType::f32, true);
  const OwnedTensor given(DType::f32, {rows, experts}, scores);
  const Var z = tape.input(given, true);
  Inputs inputs(Pass::train, samples, {offsets, positions}, 1);
  inputs.set_token_scale(scale);
  const auto balance = ExpertBalance::of(tape, inputs, {weight, z_weight, experts, chosen}, {});
  ASSERT_NE(balance, nullptr);
  const Routes routes = route(tape, z, chosen, {});
  const OwnedTensor best(DType::i32, {rows, chosen}, [&] {
    Values values;
    for (const std::int32_t id : routes.experts.tensor().span<std::int32_t>()) values.push_back(id);
    return values;
  }());
  balance->add(tape, z, routes);
  // The losses, with the routes of the scores as they are.
  const auto value = [&](const Values& at) {
    double balanced = 0, squares = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t begin = row < 4 ? 0 : 4, end = row < 4 ? 4 : 9;
      const double* own = &at[static_cast<std::size_t>(row * experts)];
      const double sum = std::accumulate(own, own + experts, 0.0, [](double s, double v) { return s + std::exp(v); });
      squares += std::log(sum) * std::log(sum);
      for (std::int64_t expert = 0; expert < experts; ++expert) {
        double share = 0;
        for (std::int64_t route = begin * chosen; route < end * chosen; ++route) {
          share +=
              best.get(route) == static_cast<float>(expert) ? 1.0 / static_cast<double>((end - begin) * chosen) : 0;
        }
        balanced += experts * share * std::exp(own[expert]) / sum;
      }
    }
    return std::pair{balanced / rows, squares / rows};
  };
  Outputs outputs;
  balance->report(outputs);
  const std::vector<MetricSum> metrics = outputs.metrics();
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(metrics[0].name, "balance");
  EXPECT_NEAR(metrics[0].sum / metrics[0].weight, value(scores).first, 1e-5);
  EXPECT_EQ(metrics[1].name, "router_z");
  EXPECT_NEAR(metrics[1].sum / metrics[1].weight, value(scores).second, 1e-5);
  tape.backward();
  const float* gradient = z.gradient().data<float>();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto moved = [&](double step) {
      Values at = scores;
      at[i] += step;
      const auto [balanced, squares] = value(at);
      return weight * balanced + z_weight * squares;
    };
    EXPECT_NEAR(gradient[i], (moved(1e-5) - moved(-1e-5)) / 2e-5, 1e-6);
  }
}

TEST(ExpertBalance, equal_loads_and_probabilities_give_1) {
  constexpr std::int64_t rows = 4, experts = 4;
  const std::vector<std::int32_t> offsets{0, rows}, positions(rows);
  const std::vector<SampleId> samples{SampleId(0)};
  const cpu::CpuOperatorTable ops;
  Arena arena;
  Tape tape(ops, arena, DType::f32, true);
  Values scores(rows * experts);
  for (std::size_t row = 0; row < rows; ++row) scores[row * experts + row] = 2;  // each token prefers another expert
  const OwnedTensor given(DType::f32, {rows, experts}, scores);
  const Var z = tape.input(given, true);
  Inputs inputs(Pass::train, samples, {offsets, positions}, 1);
  inputs.set_token_scale(0.25);
  const auto balance = ExpertBalance::of(tape, inputs, {1, 0, experts, 1}, {});
  balance->add(tape, z, route(tape, z, 1, {}));
  Outputs outputs;
  balance->report(outputs);
  EXPECT_NEAR(outputs.metrics()[0].sum, rows, 1e-5);
}

TEST(ExpertBalance, ranks_stages_and_recomputation_have_the_gradients_of_one_device) {  // ML-1
  const Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  const auto build = language_model(with_balance());
  ParallelBench single({}, bench.context("lm", true), build);
  randomise(single.section(0), 3);
  const ParallelPass expected = single.run(batch);
  DecoderConfig plain = with_balance();
  plain.experts.balance_weight = plain.experts.z_weight = 0;
  ParallelBench without({}, bench.context("lm", true), language_model(plain));
  without.load(single.whole());
  without.run(batch);
  EXPECT_GT(largest_difference(single.whole(ParameterBuffer::gradients).tensors[2].tensor,
                               without.whole(ParameterBuffer::gradients).tensors[2].tensor),
            1e-4);
  for (const Layout layout : {Layout{2, 1}, Layout{1, 2}, Layout{2, 2}}) {
    ParallelBench ranks(layout, bench.context("lm", true), build);
    ranks.load(single.whole());
    const ParallelPass found = ranks.run(batch);
    for (const char* metric : {"loss", "balance", "router_z"}) {
      EXPECT_NEAR(found.metric(metric).sum, expected.metric(metric).sum, 1e-5 * expected.metric(metric).sum) << metric;
      EXPECT_EQ(found.metric(metric).weight, expected.metric(metric).weight) << metric;
    }
    expect_close(ranks.whole(ParameterBuffer::gradients), single.whole(ParameterBuffer::gradients), 2e-5);
  }
  SectionContext context = bench.context("lm", true);
  context.recompute = 2;
  ParallelBench again({}, context, build);
  again.load(single.whole());
  EXPECT_EQ(again.run(batch).metric("balance").sum, expected.metric("balance").sum);
  expect_close(again.whole(ParameterBuffer::gradients), single.whole(ParameterBuffer::gradients), 1e-6);
}

TEST(ExpertBalance, weights_without_an_effect_are_refused) {
  const Bench bench;
  EXPECT_THAT(
      [&] {
        DecoderLm(bench.context("lm", false), {with_balance(), {}});
      },
      ::testing::ThrowsMessage<JobError>(::testing::HasSubstr("lm.balance_weight: is without effect")));
}

}  // namespace
}  // namespace maestro::testing
