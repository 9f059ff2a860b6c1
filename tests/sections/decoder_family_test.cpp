// SPDX-License-Identifier: Apache-2.0
// Decoders of every family with random fields: their config.json, and equal results under layouts and in stages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/rotary_scaling.hpp"
#include "tests/sections/parallel_bench.hpp"
#include "tests/sections/pipeline_bench.hpp"
#include "tests/sections/random_decoder.hpp"

namespace maestro::testing {
namespace {

DecoderConfig sizes() {
  DecoderConfig config;
  config.layers = 3;
  config.width = 32;
  config.heads = 8;
  config.ffn = 40;
  config.vocabulary = vocabulary;
  config.positions = 12;
  return config;
}

class EveryFamily : public ::testing::TestWithParam<std::string_view> {
 protected:
  [[nodiscard]] DecoderConfig drawn(unsigned seed) const {
    DecoderConfig base = sizes();
    const DecoderFamily family = family_of(GetParam()).value();
    if (family != DecoderFamily::gpt2) base.kv_heads = 4;
    base.tied = seed % 2 == 0;
    return RandomDecoder(seed).of(base, family);
  }
  static ParallelBench::Build language_model(const DecoderConfig& config) {
    return [config](const SectionContext& context) {
      return std::make_unique<DecoderLm>(context, DecoderLm::Options{config, {}});
    };
  }
  struct Ranks {
    Layout layout;
    unsigned seed = 0;  // of the parameters
  };
  /// Expects the loss of one device, and its gradients within `tolerance`.
  void expect_one_device(const Ranks& on, const ParallelBench::Build& build, const Batch& batch, double tolerance) {
    ParallelBench single({}, bench.context("lm", true), build), ranks(on.layout, bench.context("lm", true), build);
    randomise(single.section(0), on.seed);
    ranks.load(single.whole());
    const double loss = single.run(batch).metric("loss").sum;
    EXPECT_NEAR(ranks.run(batch).metric("loss").sum, loss, 1e-6 * loss) << on.seed;
    expect_close(ranks.whole(ParameterBuffer::gradients), single.whole(ParameterBuffer::gradients), tolerance);
  }
  Bench bench;
};

TEST_P(EveryFamily, config_json_holds_every_field) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const DecoderConfig config = drawn(seed);
    const std::string text = hf_config_text(config);
    const auto back = parse_hf_config(text, "config.json");
    ASSERT_TRUE(back.ok()) << back.error().message << text;
    EXPECT_TRUE(resolved(*back) == config) << text << hf_config_text(*back);
  }
}

TEST_P(EveryFamily, ranks_and_one_device_have_the_same_losses_and_gradients) {
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  unsigned seed = 0;
  for (const Layout layout : {Layout{2, 1}, Layout{1, 2}, Layout{2, 2}, Layout{4, 1}}) {
    const auto build = language_model(drawn(++seed));
    // The gradients of a delta rule's decay, and of routers, are sums whose terms cancel.
    const DecoderFamily family = family_of(GetParam()).value();
    const double tolerance = has_delta_rules(family) ? 1e-4 : has_experts(family) ? 5e-5 : 2e-5;
    expect_one_device({layout, seed}, build, batch, tolerance);
  }
}

TEST_P(EveryFamily, ranks_that_share_the_queries_of_heads_have_the_losses_and_gradients_of_one_device) {
  const DecoderFamily family = family_of(GetParam()).value();
  const Batch batch = Batch::random(6, {150, 9, 70}, vocabulary);
  unsigned seed = 40;
  for (const Layout layout : {Layout{1, 3}, Layout{2, 3}}) {
    DecoderConfig config = drawn(++seed);
    config.positions = 150;
    const auto build = language_model(config);
    if (has_delta_rules(family)) {
      SectionContext context = bench.context("lm", true);
      context.meta = true;
      context.parallel.layout = layout;
      EXPECT_THROW((void)build(context), JobError);  // its rows are not queries
      continue;
    }
    expect_one_device({layout, seed}, build, batch, has_experts(family) ? 5e-5 : 2e-5);
  }
}

TEST_P(EveryFamily, a_rank_without_rows_takes_part) {
  const Batch batch = Batch::random(7, {2}, vocabulary);  // so few rows that most experts have none, too
  unsigned seed = 30;
  for (const Layout layout : {Layout{1, 4}, Layout{4, 1}}) {
    const auto build = language_model(drawn(++seed));
    expect_one_device({layout, seed}, build, batch, 5e-5);  // few terms, whose differences are small
  }
}

TEST_P(EveryFamily, stages_and_the_uncut_model_have_the_same_losses_and_gradients) {
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  for (unsigned seed = 10; seed < 12; ++seed) {
    const auto build = language_model(drawn(seed));
    ParallelBench single({}, bench.context("lm", true), build);
    PipelineBench stages({seed - 8, 3}, bench.context("lm", true), build);
    randomise(single.section(0), seed);
    stages.load(single.whole());
    const double loss = single.run(batch).metric("loss").sum;
    EXPECT_NEAR(stages.run(batch).metric("loss").sum, loss, 1e-6 * loss) << seed;
    expect_close(stages.whole(ParameterBuffer::gradients), by_name(single.whole(ParameterBuffer::gradients)), 1e-5);
  }
}

TEST_P(EveryFamily, bf16_follows_fp32) {
  const Batch batch = Batch::random(5, {9, 1, 12}, vocabulary);
  const auto build = language_model(drawn(3));
  ParallelBench exact({}, bench.context("lm", true), build);
  ParallelBench rounded({}, bench.context("lm", true, DType::bf16), build);
  randomise(exact.section(0), 11);
  rounded.load(exact.whole());
  const MetricSum expected = exact.run(batch).metric("loss");
  EXPECT_NEAR(rounded.run(batch).metric("loss").sum / expected.weight, expected.sum / expected.weight, 0.05);
  const double squares = exact.gradient_sum_of_squares();
  EXPECT_NEAR(std::sqrt(rounded.gradient_sum_of_squares() / squares), 1, 0.05);
}

INSTANTIATE_TEST_SUITE_P(families, EveryFamily, ::testing::ValuesIn(decoder_family_names),
                         [](const auto& test) { return std::string(test.param); });

TEST(RotaryScaling, windowed_layers_have_frequencies_of_their_own_and_unscaled) {
  DecoderConfig config = with_family(resolved(sizes()), DecoderFamily::gemma3_text);
  config.rope_theta = 1e6;
  config.rope_scaling.kind = RotaryScaling::Kind::linear;
  config.rope_scaling.factor = 8;
  EXPECT_DOUBLE_EQ(rotary_frequencies(config, true).inverse[1], 1 / 100.0);    // 10000^(-2/4)
  EXPECT_DOUBLE_EQ(rotary_frequencies(config, false).inverse[1], 1 / 8000.0);  // 1e6^(-2/4) / 8
}

TEST(RotaryAxes, stand_one_after_another_or_alternate) {
  DecoderConfig config = with_family(resolved(sizes()), DecoderFamily::qwen2);
  config.head_size = 128;
  EXPECT_TRUE(rotary_frequencies(config, false).axis.empty());
  config.rope_sections = {16, 24, 24};
  const std::vector<std::uint8_t> blocks = rotary_frequencies(config, false).axis;
  ASSERT_EQ(blocks.size(), 64U);
  for (std::size_t pair = 0; pair < 64; ++pair) EXPECT_EQ(blocks[pair], pair < 16 ? 0 : pair < 40 ? 1 : 2) << pair;
  config.rope_sections = {24, 20, 20};
  config.rope_interleaved = true;
  const std::vector<std::uint8_t> turns = rotary_frequencies(config, false).axis;
  ASSERT_EQ(turns.size(), 64U);
  for (std::size_t pair = 0; pair < 64; ++pair) EXPECT_EQ(turns[pair], pair < 60 ? pair % 3 : 0) << pair;
}

TEST(DecoderShape, is_described_in_a_line) {
  DecoderConfig config = with_family(resolved(sizes()), DecoderFamily::qwen3);
  config.head_size = 128;
  config.kv_heads = 4;
  EXPECT_EQ(described(config),
            "qwen3, 3 layers x 32, 8 heads of 128 (4 kv), q/k norms, rope 10000, tied, vocabulary 37");
  DecoderConfig deepseek = sizes();
  deepseek.family = DecoderFamily::deepseek_v3;
  EXPECT_THAT(
      described(with_kinds_of_layers(deepseek)),
      ::testing::StartsWith("deepseek_v3, 3 layers x 32, 8 heads of 12, latents of 10, rope 10000, 4 experts of 8, "
                            "2 a token, a shared expert of 8, "));
}

}  // namespace
}  // namespace maestro::testing
