// SPDX-License-Identifier: Apache-2.0
// Layers that the backward pass recomputes: the same bits with less memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "sections/decoder/decoder_lm.hpp"
#include "tests/sections/parallel_bench.hpp"
#include "tests/sections/random_decoder.hpp"

namespace maestro::testing {
namespace {

DecoderConfig shape() {
  DecoderConfig config;
  config.family = DecoderFamily::llama;
  config.layers = 5;
  config.width = 32;
  config.heads = 8;
  config.kv_heads = 4;
  config.ffn = 48;
  config.vocabulary = 37;
  config.positions = 24;
  return config;
}

SectionContext context_of(const Bench& bench, std::int64_t recompute, DType precision = DType::f32) {
  SectionContext context = bench.context("lm", true, precision);
  context.recompute = recompute;
  return context;
}

struct Result {
  double loss = 0;
  std::vector<float> gradients;
};

Result pass(Bench& bench, const DecoderConfig& config, std::int64_t recompute, DType precision = DType::f32) {
  DecoderLm model(context_of(bench, recompute, precision), {config, {}});
  randomise(model, 11);
  const Batch batch = Batch::random(5, {9, 1, 12, 20}, 37);
  std::ranges::fill(model.parameters().gradients(), 0.0f);
  MicroBatch micro_batch(bench, model, batch, Pass::train, precision);
  micro_batch.forward();
  micro_batch.backward();
  EXPECT_EQ(bench.arena.used_bytes(), 0U);
  return {micro_batch.metric("loss"), {model.parameters().gradients().begin(), model.parameters().gradients().end()}};
}

TEST(Recompute, losses_and_gradients_of_every_family_keep_their_bits) {  // DK-1
  Bench bench;
  for (const std::string_view name : decoder_family_names) {
    const DecoderFamily family = family_of(name).value();
    DecoderConfig base = shape();
    if (family == DecoderFamily::gpt2) base.kv_heads = 0;
    const DecoderConfig config = RandomDecoder(7).of(base, family);
    for (const DType precision : {DType::f32, DType::bf16}) {
      const Result kept = pass(bench, config, 0, precision);
      for (const std::int64_t layers : {1, 2, 5, 9}) {
        const Result again = pass(bench, config, layers, precision);
        EXPECT_EQ(again.loss, kept.loss) << name << " " << layers;
        EXPECT_EQ(again.gradients, kept.gradients) << name << " " << layers;
      }
    }
  }
}

TEST(Recompute, ranks_of_any_layout_compute_the_same_again) {
  Bench bench;
  const Batch batch = Batch::random(5, {9, 1, 12, 20}, 37);
  for (const DecoderConfig& config : {shape(), with_convolutions(shape()), with_delta_rules(shape())}) {
    for (const Layout layout : {Layout{2, 1}, Layout{1, 2}, Layout{2, 2}, Layout{1, 3}}) {
      if (config.delta.key_heads % layout.ranks() != 0) continue;
      const auto build = [&](const SectionContext& context) {
        return std::make_unique<DecoderLm>(context, DecoderLm::Options{config, {}});
      };
      ParallelBench kept(layout, context_of(bench, 0), build), again(layout, context_of(bench, 2), build);
      const ParallelPass expected = kept.run(batch), found = again.run(batch);
      EXPECT_EQ(found.metric("loss").sum, expected.metric("loss").sum);
      expect_same(again.whole(ParameterBuffer::gradients), kept.whole(ParameterBuffer::gradients));
    }
  }
}

TEST(Recompute, less_is_kept_between_forward_and_backward_as_the_cost_says) {  // DK-2
  Bench bench;
  const Batch batch = Batch::random(5, {24, 24}, 37);
  std::map<std::int64_t, double> kept;
  std::map<std::int64_t, Cost> costs;
  for (const std::int64_t layers : {0, 1}) {
    DecoderLm model(context_of(bench, layers), {shape(), {}});
    costs[layers] = model.cost({24, 0, 0});
    MicroBatch micro_batch(bench, model, batch);
    micro_batch.forward();
    kept[layers] = static_cast<double>(bench.arena.used_bytes());
  }
  EXPECT_LT(kept[1], kept[0] / 2);
  EXPECT_LT(costs[1].bytes, costs[0].bytes / 2);
  EXPECT_EQ(costs[0].recomputed, 0);
  EXPECT_GT(costs[1].recomputed, costs[1].flops / 2);  // everything but the output layer
  EXPECT_LT(costs[1].recomputed, costs[1].flops);
}

TEST(Recompute, a_validation_pass_keeps_nothing_and_gives_the_same) {
  Bench bench;
  const Batch batch = Batch::random(5, {24, 24}, 37);
  DecoderLm again(context_of(bench, 1), {shape(), {}}), kept(context_of(bench, 0), {shape(), {}});
  EXPECT_EQ(evaluate(bench, again, batch), evaluate(bench, kept, batch));
}

}  // namespace
}  // namespace maestro::testing
