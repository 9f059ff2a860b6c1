// SPDX-License-Identifier: Apache-2.0
// Decoder sections over ranks against a single rank: losses, gradients, outputs, initial values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/decoder/language_model_head.hpp"
#include "tests/sections/parallel_bench.hpp"
#include "tests/sections/random_decoder.hpp"

namespace maestro::testing {
namespace {

// Sums over ranks have another order than on a single rank: some roundings of 6e-8 each, more if values with opposite
// signs meet.
constexpr double gradient_tolerance = 1e-5;

/// Divisible by 8. Three context ranks, or six, divide queries.
DecoderConfig model(DecoderFamily family, bool tied) {
  DecoderConfig config;
  config.family = family;
  config.layers = 2;
  config.width = 64;
  config.heads = 16;
  config.kv_heads = family == DecoderFamily::gpt2 ? 0 : 8;
  config.ffn = 40;
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

ParallelBench::Build trunk_of(const DecoderConfig& config, TeacherOutput boundary, std::int64_t top_k = 5) {
  return [config, boundary, top_k](const SectionContext& context) {
    return std::make_unique<DecoderTrunk>(context, DecoderTrunk::Options{config, boundary, top_k, {}});
  };
}

void expect_same_losses(const ParallelPass& found, const ParallelPass& expected) {
  ASSERT_EQ(found.metrics.size(), expected.metrics.size());
  for (const MetricSum& metric : expected.metrics) {
    EXPECT_NEAR(found.metric(metric.name).sum, metric.sum, loss_tolerance * metric.sum) << metric.name;
    EXPECT_EQ(found.metric(metric.name).weight, metric.weight) << metric.name;
  }
}

void expect_gradients_of_one_rank(ParallelBench& found, ParallelBench& expected, double floor = 1e-6,
                                  double tolerance = gradient_tolerance) {
  expect_close(found.whole(ParameterBuffer::gradients), expected.whole(ParameterBuffer::gradients), tolerance, floor);
  const double squares = expected.gradient_sum_of_squares();
  EXPECT_GT(squares, 0);
  EXPECT_NEAR(found.gradient_sum_of_squares(), squares, gradient_tolerance * squares);
}

struct Case {
  DecoderFamily family;
  bool tied = false;
  Layout layout;
};

class DecoderOverRanks : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] ParallelBench on(Layout layout, DType precision = DType::f32) const {
    return {layout, bench.context("lm", true, precision), language_model(model(GetParam().family, GetParam().tied))};
  }
  /// Compares a single rank, with values large enough for every term to matter, with the case's ranks.
  void expect_equal_passes(const Batch& batch, double floor = 1e-6) {
    ParallelBench single = on({}), ranks = on(GetParam().layout);
    randomise(single.section(0), 11);
    ranks.load(single.whole());
    const ParallelPass expected = single.run(batch);
    expect_same_losses(ranks.run(batch), expected);
    // The gradients of a delta rule's decay are sums whose terms cancel; in samples of two rows they are small.
    const bool delta = has_delta_rules(GetParam().family);
    expect_gradients_of_one_rank(ranks, single, delta ? std::max(floor, 1e-3) : floor,
                                 delta ? 5 * gradient_tolerance : gradient_tolerance);
    expect_same_losses(ranks.run(batch, Pass::evaluate), expected);
  }
  Bench bench;
};

TEST_P(DecoderOverRanks, losses_and_gradients_are_those_of_one_rank) {  // RU-4
  expect_equal_passes(Batch::random(5, {9, 1, 12}, vocabulary));        // the middle row lies within the last sample
}

TEST_P(DecoderOverRanks, micro_batches_of_fewer_rows_than_ranks_are_as_good_as_any_other) {
  expect_equal_passes(Batch::random(7, {2, 1}, vocabulary));
  // A row that attends only to itself gives query and key no gradient, only rounding errors without a relative size.
  expect_equal_passes(Batch::random(6, {1}, vocabulary), 0.1);
}

TEST_P(DecoderOverRanks, initial_values_are_parts_of_those_of_one_rank) {  // PA-3
  ParallelBench single = on({}), ranks = on(GetParam().layout);
  expect_same(ranks.whole(), single.whole());
}

TEST_P(DecoderOverRanks, passes_repeat_bitwise) {
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  ParallelBench ranks = on(GetParam().layout);
  const double loss = ranks.run(batch).metric("loss").sum;
  const TensorSnapshot gradients = ranks.whole(ParameterBuffer::gradients);
  EXPECT_EQ(ranks.run(batch).metric("loss").sum, loss);
  expect_same(ranks.whole(ParameterBuffer::gradients), gradients);
}

TEST_P(DecoderOverRanks, bf16_follows_fp32) {
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  ParallelBench exact = on({}), rounded = on(GetParam().layout, DType::bf16);
  randomise(exact.section(0), 11);
  rounded.load(exact.whole());
  const MetricSum expected = exact.run(batch).metric("loss");
  // Eight bits of mantissa, some ten roundings in succession, averaged over the batch.
  EXPECT_NEAR(rounded.run(batch).metric("loss").sum / expected.weight, expected.sum / expected.weight, 0.03);
  const double squares = exact.gradient_sum_of_squares();
  EXPECT_NEAR(std::sqrt(rounded.gradient_sum_of_squares() / squares), 1, 0.03);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DecoderFamily family : {DecoderFamily::gpt2, DecoderFamily::llama}) {
    for (const bool tied : {true, false}) {
      for (const Layout layout : {Layout{2, 1}, Layout{4, 1}, Layout{1, 2}, Layout{2, 2}, Layout{4, 2}, Layout{2, 4},
                                  Layout{2, 8}, Layout{1, 3}, Layout{2, 6}}) {
        all.push_back({family, tied, layout});
      }
    }
  }
  for (const Layout layout : {Layout{2, 1}, Layout{1, 2}, Layout{1, 4}, Layout{2, 2}, Layout{2, 4}}) {
    all.push_back({DecoderFamily::lfm2, true, layout});
    all.push_back({DecoderFamily::qwen3_5_text, false, layout});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(cases, DecoderOverRanks, ::testing::ValuesIn(cases()), [](const auto& test) {
  const Case& each = test.param;
  return std::string(name_of(each.family)) + (each.tied ? "_tied_" : "_untied_") + std::to_string(each.layout.tensor) +
         "x" + std::to_string(each.layout.context);
});

TEST(TrunkOverRanks, gradients_of_its_hidden_states_come_back_through_a_head_of_another_layout) {
  Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  for (const DecoderFamily family : {DecoderFamily::gpt2, DecoderFamily::llama}) {
    const DecoderConfig config = model(family, false);
    const auto head_section = [config](const SectionContext& context) {
      return std::make_unique<LanguageModelHead>(context, LanguageModelHead::Options{config, {}});
    };
    const auto trunk_section = trunk_of(config, TeacherOutput::hidden);
    const SectionContext below = bench.context("trunk", true), above = bench.context("head", true);
    ParallelBench trunk({}, below, trunk_section), head({}, above, head_section);
    ParallelBench trunk_ranks({2, 2}, below, trunk_section), head_ranks({4, 1}, above, head_section);
    const auto step = [&](ParallelBench& lower, ParallelBench& upper) {
      const ParallelPass states = lower.run(batch, Pass::evaluate);
      const Tensor& hidden = states.outputs.at("hidden");
      ParallelPass losses = upper.run(batch, Pass::train, {{"hidden", hidden, true}});
      lower.run(batch, Pass::train, {}, {{"hidden", losses.input_gradients.at("hidden")}});
      return losses;
    };
    const ParallelPass expected = step(trunk, head), found = step(trunk_ranks, head_ranks);
    expect_same_losses(found, expected);
    EXPECT_LE(worst_error(found.input_gradients.at("hidden").values(), expected.input_gradients.at("hidden").values()),
              gradient_tolerance);
    expect_gradients_of_one_rank(head_ranks, head);
    expect_gradients_of_one_rank(trunk_ranks, trunk);
  }
}

TEST(TrunkOverRanks, logits_and_top_k_are_those_of_one_rank_also_when_frozen) {
  Bench bench;
  const Batch batch = Batch::random(5, {60, 50, 60}, vocabulary);  // more rows than a logits block on every part
  DecoderConfig config = model(DecoderFamily::gpt2, true);
  config.positions = 60;
  for (const Layout layout : {Layout{2, 1}, Layout{1, 2}, Layout{4, 2}}) {
    for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::logits, TeacherOutput::top_k}) {
      // 12 exceeds the tokens of one rank in four: its complete part may be in the top k.
      const auto build = trunk_of(config, boundary, 12);
      ParallelBench single({}, bench.context("teacher", false), build);
      randomise(single.section(0), 3);
      ParallelBench ranks(layout, bench.context("teacher", false), build);
      ranks.load(single.whole());
      for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
        ranks.section(rank).freeze();
        EXPECT_FALSE(ranks.section(rank).shareable());  // ranks meet in collectives
      }
      const ParallelPass expected = single.run(batch, Pass::evaluate), found = ranks.run(batch, Pass::evaluate);
      for (const auto& [name, tensor] : expected.outputs) {
        const double tolerance = tensor.tensor().dtype() == DType::i32 ? 0 : 1e-5;
        EXPECT_LE(worst_error(found.outputs.at(name).values(), tensor.values()), tolerance) << name;
      }
    }
  }
}

TEST(TrunkOverRanks, a_micro_batch_of_one_row_gives_its_outputs) {
  Bench bench;
  const Batch batch = Batch::random(6, {1}, vocabulary);
  for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::logits, TeacherOutput::top_k}) {
    const auto build = trunk_of(model(DecoderFamily::llama, false), boundary);
    ParallelBench single({}, bench.context("teacher", false), build);
    ParallelBench ranks({2, 4}, bench.context("teacher", false), build);
    const ParallelPass expected = single.run(batch, Pass::evaluate), found = ranks.run(batch, Pass::evaluate);
    for (const auto& [name, tensor] : expected.outputs) {
      EXPECT_LE(worst_error(found.outputs.at(name).values(), tensor.values()), 1e-5) << name;
    }
  }
}

}  // namespace
}  // namespace maestro::testing
