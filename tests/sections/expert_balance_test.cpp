// SPDX-License-Identifier: Apache-2.0
// Losses that keep the experts busy: values and gradients against their definition, and the same under layouts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/expert_balance.hpp"
#include "tests/sections/parallel_bench.hpp"
#include "tests/sections/pipeline_bench.hpp"

namespace maestro::testing {
namespace {

DecoderConfig with_balance(LoadBalance balance = LoadBalance::sequence) {
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
  config.experts.balance = balance;
  config.experts.balance_weight = 0.5;
  config.experts.z_weight = 0.1;
  if (balance != LoadBalance::bias) return with_family(config, DecoderFamily::qwen3_moe);
  config.conv_width = 3;
  config.experts.dense_layers = {0};
  config = with_family(config, DecoderFamily::lfm2_moe);
  config.experts.score_bias = true;
  config.experts.router.kind = RouterKind::sigmoid;
  return config;
}

ParallelBench::Build language_model(const DecoderConfig& config) {
  return [config](const SectionContext& context) {
    return std::make_unique<DecoderLm>(context, DecoderLm::Options{config, {}});
  };
}

/// A micro-batch's scores (9, 5) of two samples, with the losses of a layer.
class LayerLosses {
 public:
  static constexpr std::int64_t rows = 9, experts = 5, chosen = 2;
  static constexpr double weight = 0.7, z_weight = 0.3, scale = 1.0 / rows;

  LayerLosses(LoadBalance balance, RouterKind kind) {
    config_.count = experts;
    config_.per_token = chosen;
    config_.router.kind = kind;
    config_.balance = balance;
    config_.balance_weight = weight;
    config_.z_weight = z_weight;
    const auto counted = [&](const char* name, UpdateRule::Kind rule) {
      return &parameters_.add({.name = name, .shape = Shape{experts}, .initialise = {}, .rule = {rule, chosen}});
    };
    counted_ = {counted("loads", UpdateRule::Kind::loads), counted("bias", UpdateRule::Kind::bias)};
    parameters_.allocate(true);
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      counted_.loads->value().span<float>()[static_cast<std::size_t>(expert)] = static_cast<float>(expert) / 2;
    }
    z_ = tape_.input(given_, true);
    routes_ = route(tape_, z_, chosen, config_.router);
    Inputs inputs(Pass::train, samples_, {offsets_, positions_}, 1);
    inputs.set_token_scale(scale);
    balance_ = ExpertBalance::of(tape_, inputs, config_, {});
    balance_->add(tape_, z_, routes_, counted_);
  }

  [[nodiscard]] std::vector<MetricSum> metrics() const {
    Outputs outputs;
    balance_->report(outputs);
    return outputs.metrics();
  }
  /// Returns both means at other scores, with the routes of the scores as they are.
  [[nodiscard]] std::pair<double, double> definition(const Values& at) const {
    double balanced = 0, squares = 0;
    const bool sigmoids = config_.router.kind == RouterKind::sigmoid;
    const auto part = [&](double score) { return sigmoids ? 1 / (1 + std::exp(-score)) : std::exp(score); };
    for (std::int64_t row = 0; row < rows; ++row) {
      const double* own = &at[static_cast<std::size_t>(row * experts)];
      const auto sum = [&](auto of) {
        return std::accumulate(own, own + experts, 0.0, [&](double all, double score) { return all + of(score); });
      };
      const double whole = std::log(sum([](double score) { return std::exp(score); }));
      squares += whole * whole;
      for (std::int64_t expert = 0; expert < experts; ++expert) {
        balanced += load_of(row, expert) * part(own[expert]) / sum(part);
      }
    }
    return {balanced / rows, squares / rows};
  }
  /// Expects the gradients of the losses at the scores.
  void expect_gradients() {
    tape_.backward();
    const float* gradient = z_.gradient().data<float>();
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      const auto moved = [&](double step) {
        Values at = scores_;
        at[i] += step;
        const auto [balanced, squares] = definition(at);
        return weight * balanced + z_weight * squares;
      };
      EXPECT_NEAR(gradient[i], (moved(1e-5) - moved(-1e-5)) / 2e-5, 1e-6);
    }
  }
  /// Returns the routes to an expert from rows [begin, end).
  [[nodiscard]] float count(std::int64_t expert, std::int64_t begin, std::int64_t end) const {
    const auto ids = routes_.experts.tensor().span<std::int32_t>();
    return static_cast<float>(std::count(ids.begin() + begin * chosen, ids.begin() + end * chosen, expert));
  }
  [[nodiscard]] const Values& scores() const { return scores_; }
  [[nodiscard]] const ExpertBalance::Counted& counted() const { return counted_; }

 private:
  [[nodiscard]] double load_of(std::int64_t row, std::int64_t expert) const {
    if (config_.balance == LoadBalance::batch) return static_cast<double>(expert) / 2;
    const std::int64_t begin = row < 4 ? 0 : 4, end = row < 4 ? 4 : rows;
    return count(expert, begin, end) * experts / static_cast<double>((end - begin) * chosen);
  }

  const std::vector<std::int32_t> offsets_{0, 4, rows}, positions_ = std::vector<std::int32_t>(rows);
  const std::vector<SampleId> samples_{SampleId(0), SampleId(1)};
  std::mt19937 random_{5};
  Values scores_ = exact_normals(random_, rows* experts);
  OwnedTensor given_{DType::f32, {rows, experts}, scores_};
  cpu::CpuOperatorTable ops_;
  Arena arena_;
  Tape tape_{ops_, arena_, DType::f32, true};
  ExpertConfig config_;
  Parameters parameters_;
  ExpertBalance::Counted counted_;
  Var z_;
  Routes routes_;
  std::shared_ptr<ExpertBalance> balance_;
};

TEST(ExpertBalance, losses_and_gradients_are_the_definition) {
  for (const LoadBalance balance : {LoadBalance::sequence, LoadBalance::batch, LoadBalance::bias}) {
    for (const RouterKind kind : {RouterKind::chosen, RouterKind::sigmoid}) {
      LayerLosses layer(balance, kind);
      const std::vector<MetricSum> metrics = layer.metrics();
      ASSERT_EQ(metrics.size(), 2U);
      EXPECT_EQ(metrics[0].name, "balance");
      EXPECT_NEAR(metrics[0].sum / metrics[0].weight, layer.definition(layer.scores()).first, 1e-5);
      EXPECT_EQ(metrics[1].name, "router_z");
      EXPECT_NEAR(metrics[1].sum / metrics[1].weight, layer.definition(layer.scores()).second, 1e-5);
      layer.expect_gradients();
      for (std::int64_t expert = 0; expert < LayerLosses::experts; ++expert) {  // ML-2
        const auto at = static_cast<std::size_t>(expert);
        const float expected = layer.count(expert, 0, LayerLosses::rows);
        EXPECT_EQ(layer.counted().loads->gradient().span<float>()[at], expected);
        EXPECT_EQ(layer.counted().bias->gradient().span<float>()[at], balance == LoadBalance::bias ? expected : 0);
      }
    }
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
  ExpertConfig config;
  config.count = experts;
  config.per_token = 1;
  config.balance = LoadBalance::sequence;
  config.balance_weight = 1;
  const auto balance = ExpertBalance::of(tape, inputs, config, {});
  balance->add(tape, z, route(tape, z, 1, {}), {});
  Outputs outputs;
  balance->report(outputs);
  EXPECT_NEAR(outputs.metrics()[0].sum, rows, 1e-5);
}

/// Returns the counts of a section's routes that all ranks together have, by parameter.
std::map<std::string, std::vector<float>> counts_of(ParallelBench& bench) {
  std::map<std::string, std::vector<float>> counts;
  for (const Parameter& parameter : bench.section(0).parameters().all()) {
    if (!parameter.rule().counts()) continue;
    const std::span<float> values = parameter.gradient().span<float>();
    counts[parameter.name()] = {values.begin(), values.end()};
  }
  return counts;
}

TEST(ExpertBalance, ranks_stages_and_recomputation_have_the_gradients_of_one_device) {  // ML-1, ML-2
  const Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  for (const LoadBalance balance : {LoadBalance::sequence, LoadBalance::batch, LoadBalance::bias}) {
    const auto build = language_model(with_balance(balance));
    const auto set_loads = [](Section& section) {
      for (Parameter& each : section.parameters().all()) {
        if (each.rule().kind != UpdateRule::Kind::loads) continue;
        for (std::size_t expert = 0; expert < 6; ++expert) {
          each.value().span<float>()[expert] = static_cast<float>(expert) / 3;
        }
      }
    };
    ParallelBench single({}, bench.context("lm", true), build);
    randomise(single.section(0), 3);
    set_loads(single.section(0));
    const ParallelPass expected = single.run(batch);
    const auto counts = counts_of(single);
    EXPECT_EQ(counts.size(), balance == LoadBalance::bias ? 4U : 2U);
    for (const auto& [name, of] : counts) EXPECT_EQ(std::accumulate(of.begin(), of.end(), 0.0F), 22 * 2) << name;
    for (const Layout layout :
         {Layout{2, 1}, Layout{1, 2}, Layout{2, 2}, Layout{2, 1, 2}, Layout{1, 2, 2}, Layout{2, 2, 2}}) {
      ParallelBench ranks(layout, bench.context("lm", true), build);
      ranks.load(single.whole());
      for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) set_loads(ranks.section(rank));
      const ParallelPass found = ranks.run(batch);
      for (const char* metric : {"loss", "balance", "router_z"}) {
        EXPECT_NEAR(found.metric(metric).sum, expected.metric(metric).sum, 1e-5 * expected.metric(metric).sum)
            << metric;
        EXPECT_EQ(found.metric(metric).weight, expected.metric(metric).weight) << metric;
      }
      expect_close(ranks.whole(ParameterBuffer::gradients), single.whole(ParameterBuffer::gradients), 2e-5);
      EXPECT_EQ(counts_of(ranks), counts);
      EXPECT_NEAR(ranks.gradient_sum_of_squares(), single.gradient_sum_of_squares(),
                  1e-4 * single.gradient_sum_of_squares());
    }
    SectionContext context = bench.context("lm", true);
    context.recompute = 2;
    ParallelBench again({}, context, build);
    again.load(single.whole());
    set_loads(again.section(0));
    EXPECT_EQ(again.run(batch).metric("balance").sum, expected.metric("balance").sum);
    expect_close(again.whole(ParameterBuffer::gradients), single.whole(ParameterBuffer::gradients), 1e-6);
    EXPECT_EQ(counts_of(again), counts);
  }
}

TEST(ExpertBalance, losses_of_loads_have_gradients) {
  const Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  ParallelBench with({}, bench.context("lm", true), language_model(with_balance()));
  randomise(with.section(0), 3);
  with.run(batch);
  DecoderConfig plain = with_balance(LoadBalance::none);
  plain.experts.balance_weight.reset();
  plain.experts.z_weight = 0;
  ParallelBench without({}, bench.context("lm", true), language_model(plain));
  without.load(with.whole());
  without.run(batch);
  EXPECT_GT(largest_difference(with.whole(ParameterBuffer::gradients).tensors[2].tensor,
                               without.whole(ParameterBuffer::gradients).tensors[2].tensor),
            1e-4);
}

TEST(ExpertBalance, figures_are_means_over_layers) {
  Parameters parameters;
  for (const char* name : {"first", "second"}) {
    parameters.add({.name = name, .shape = Shape{4}, .initialise = {}, .rule = {UpdateRule::Kind::loads, 2}});
  }
  parameters.allocate(true);
  const auto set = [&](const char* name, const std::vector<float>& loads) {
    std::ranges::copy(loads, parameters.find(name)->value().span<float>().begin());
  };
  set("first", {0, 1, 3, 0});
  set("second", {1, 1, 1, 1});
  const cpu::CpuOperatorTable ops;
  const std::vector<MetricSum> figures = load_figures(ops, parameters).get();
  ASSERT_EQ(figures.size(), 2U);
  EXPECT_EQ(figures[0].name, "load_max");
  EXPECT_EQ(figures[0].sum / figures[0].weight, 2);
  EXPECT_EQ(figures[1].name, "load_idle");
  EXPECT_EQ(figures[1].sum / figures[1].weight, 0.25);
}

TEST(ExpertBalance, settings_without_an_effect_are_refused) {
  const Bench bench;
  const auto refusal = [&](bool trained, const DecoderConfig& config) -> std::string {
    try {
      DecoderLm(bench.context("lm", trained), {config, {}});
    } catch (const JobError& error) {
      return error.what();
    }
    return "none";
  };
  DecoderConfig config = with_balance();
  EXPECT_THAT(refusal(false, config),
              ::testing::HasSubstr("lm.balance: is without effect: the section is not trained"));
  config.experts.balance.reset();
  EXPECT_THAT(refusal(false, config), ::testing::HasSubstr("lm.balance_weight: is without effect"));
  EXPECT_EQ(refusal(true, config), "none");
  config.experts.balance = LoadBalance::none;
  EXPECT_THAT(refusal(true, config), ::testing::HasSubstr("balance is \"none\"; leave it out"));
  config.experts.balance = LoadBalance::bias;
  EXPECT_THAT(refusal(true, config), ::testing::HasSubstr("lacks a bias of scores; set balance = \"batch\""));
  config.experts.balance = LoadBalance::batch;
  config.experts.bias_rate = 0.1;
  EXPECT_THAT(refusal(true, config), ::testing::HasSubstr("lm.bias_rate: is without effect: balance is not \"bias\""));
}

}  // namespace
}  // namespace maestro::testing
