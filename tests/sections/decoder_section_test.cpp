// SPDX-License-Identifier: Apache-2.0
// Comparisons between decoder sections: gradients and differences, divided sections, initial values, limits, costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sections/decoder/decoder_lm.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/decoder/language_model_head.hpp"
#include "tests/job/job_error.hpp"
#include "tests/sections/random_decoder.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

DecoderConfig tiny(DecoderFamily family, bool tied) {
  DecoderConfig config;
  config.family = family;
  config.layers = 2;
  config.width = 16;
  config.heads = 4;
  config.kv_heads = family == DecoderFamily::gpt2 ? 0 : 2;
  config.ffn = 24;
  config.vocabulary = 37;
  config.positions = 12;
  config.tied = tied;
  return with_kinds_of_layers(config);
}

class DecoderFamilies : public ::testing::TestWithParam<std::pair<DecoderFamily, bool>> {
 protected:
  [[nodiscard]] DecoderConfig config() const { return tiny(GetParam().first, GetParam().second); }
  Bench bench;
  Batch batch = Batch::random(5, {9, 1, 12}, 37);
};

TEST_P(DecoderFamilies, gradients_of_the_whole_decoder_match_differences) {
  DecoderLm model(bench.context("lm", true), {config(), {}});
  randomise(model, 11);
  expect_gradients_match_differences(bench, model, batch);
}

TEST_P(DecoderFamilies, a_pass_leaves_nothing_in_the_arena) {
  DecoderLm model(bench.context("lm", true), {config(), {}});
  differentiate(bench, model, batch);
  EXPECT_EQ(bench.arena.used_bytes(), 0u);
  evaluate(bench, model, batch);
  EXPECT_EQ(bench.arena.used_bytes(), 0u);
}

TEST_P(DecoderFamilies, two_micro_batches_between_forward_and_backward_do_not_disturb_each_other) {
  DecoderLm model(bench.context("lm", true), {config(), {}});
  const Batch other = Batch::random(6, {3, 8}, 37);
  differentiate(bench, model, batch);
  MicroBatch second(bench, model, other);  // gradients add up
  second.forward();
  second.backward();
  const std::vector<float> apart(model.parameters().gradients().begin(), model.parameters().gradients().end());
  std::ranges::fill(model.parameters().gradients(), 0.0f);
  {
    MicroBatch a(bench, model, batch), b(bench, model, other);
    a.forward();
    b.forward();
    a.backward();
    b.backward();
  }
  // A tied embedding adds its four parts in another order, so a few roundings are tolerated.
  const std::span<float> together = model.parameters().gradients();
  for (std::size_t i = 0; i < apart.size(); ++i) ASSERT_NEAR(together[i], apart[i], 1e-7) << i;
}

TEST_P(DecoderFamilies, samples_do_not_see_each_other) {
  DecoderTrunk trunk(bench.context("trunk", false), {config(), TeacherOutput::hidden, 1, {}});
  const Batch alone({batch.tokens.begin() + 10, batch.tokens.end()}, {batch.targets.begin() + 10, batch.targets.end()},
                    {0, 12});
  MicroBatch packed(bench, trunk, batch, Pass::evaluate), single(bench, trunk, alone, Pass::evaluate);
  packed.forward();
  single.forward();
  EXPECT_LT(largest_difference(packed.output("hidden").row_slice(10, 12), single.output("hidden")), 2e-6);
}

TEST_P(DecoderFamilies, building_twice_gives_bitwise_equal_parameters) {  // SE-3
  DecoderLm first(bench.context("lm", true), {config(), {}});
  DecoderLm second(bench.context("lm", false), {config(), {}});
  EXPECT_TRUE(std::ranges::equal(first.parameters().values(), second.parameters().values()));
  DecoderLm other_name(bench.context("ml", true), {config(), {}});
  EXPECT_FALSE(std::ranges::equal(first.parameters().values(), other_name.parameters().values()));
  SectionContext other_seed = bench.context("lm", true);
  other_seed.seed = 43;
  DecoderLm reseeded(other_seed, {config(), {}});
  EXPECT_FALSE(std::ranges::equal(first.parameters().values(), reseeded.parameters().values()));
}

TEST_P(DecoderFamilies, bf16_follows_fp32) {
  DecoderLm exact(bench.context("lm", true), {config(), {}});
  randomise(exact, 11);
  const double loss = evaluate(bench, exact, batch);
  MicroBatch rounded(bench, exact, batch, Pass::train, DType::bf16);
  rounded.forward();
  rounded.backward();
  // Eight bits of mantissa, some ten roundings in succession, averaged over the batch.
  EXPECT_NEAR(rounded.metric("loss"), loss, 0.02);
  EXPECT_NE(rounded.metric("loss"), loss);
}

TEST_P(DecoderFamilies, a_frozen_section_computes_the_same_and_refuses_nothing_else) {
  DecoderTrunk trunk(bench.context("teacher", false), {config(), TeacherOutput::logits, 1, {}});
  MicroBatch before(bench, trunk, batch, Pass::evaluate);
  before.forward();
  trunk.freeze();
  MicroBatch after(bench, trunk, batch, Pass::evaluate);
  after.forward();
  EXPECT_EQ(largest_difference(before.output("logits"), after.output("logits")), 0);
}

INSTANTIATE_TEST_SUITE_P(families, DecoderFamilies,
                         ::testing::Values(std::pair{DecoderFamily::gpt2, true}, std::pair{DecoderFamily::gpt2, false},
                                           std::pair{DecoderFamily::llama, true},
                                           std::pair{DecoderFamily::llama, false}, std::pair{DecoderFamily::lfm2, true},
                                           std::pair{DecoderFamily::qwen3_5_text, false}),
                         [](const auto& test) {
                           return std::string(name_of(test.param.first)) + (test.param.second ? "_tied" : "_untied");
                         });

/// Copies parameters by name, so that models divided differently hold the same values.
void copy_parameters(Section& from, Section& to) {
  for (Parameter& parameter : to.parameters().all()) {
    std::ranges::copy(from.parameters().find(parameter.name())->value().span<float>(), parameter.value().data<float>());
  }
  to.parameters().values_changed();
}

void expect_equal_gradients(Section& part, Section& whole) {
  for (Parameter& parameter : part.parameters().all()) {
    const Tensor& expected = whole.parameters().find(parameter.name())->gradient();
    EXPECT_EQ(largest_difference(parameter.gradient(), expected), 0) << parameter.name();
  }
}

TEST(DecoderTrunk, with_a_head_in_another_section_equals_the_whole_model) {
  for (const DecoderFamily family : {DecoderFamily::gpt2, DecoderFamily::llama}) {
    Bench bench;
    const DecoderConfig config = tiny(family, false);
    const Batch batch = Batch::random(5, {9, 1, 12}, 37);
    DecoderLm whole(bench.context("lm", true), {config, {}});
    DecoderTrunk trunk(bench.context("trunk", true), {config, TeacherOutput::hidden, 1, {}});
    LanguageModelHead head(bench.context("head", true), {config, {}});
    copy_parameters(whole, trunk);
    copy_parameters(whole, head);
    const double loss = differentiate(bench, whole, batch);

    MicroBatch below(bench, trunk, batch);
    below.forward();
    MicroBatch above(bench, head, batch);
    above.connect("hidden", below.output("hidden"), true);
    above.forward();
    EXPECT_EQ(above.metric("loss"), loss);
    above.backward();
    below.seed("hidden", above.input("hidden").gradient());
    below.backward();
    expect_equal_gradients(trunk, whole);
    expect_equal_gradients(head, whole);
  }
}

TEST(DecoderTrunk, top_k_is_the_largest_logits_in_order) {
  Bench bench;
  const Batch batch = Batch::random(5, {12, 12, 12, 12, 12, 12, 3}, 37);  // more rows than a logits block
  DecoderTrunk all(bench.context("teacher", false), {tiny(DecoderFamily::gpt2, true), TeacherOutput::logits, 1, {}});
  DecoderTrunk few(bench.context("teacher", false), {tiny(DecoderFamily::gpt2, true), TeacherOutput::top_k, 5, {}});
  MicroBatch logits(bench, all, batch, Pass::evaluate), top(bench, few, batch, Pass::evaluate);
  logits.forward();
  top.forward();
  ASSERT_EQ(top.output("top_values").shape(), (Shape{75, 5}));
  for (std::int64_t row = 0; row < batch.rows(); ++row) {
    const auto values = logits.output("logits").row_slice(row, 1).span<float>();
    std::vector<std::int32_t> order(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    std::ranges::stable_sort(order, std::greater{},
                             [&](std::int32_t i) { return values[static_cast<std::size_t>(i)]; });
    const auto found = top.output("top_indices").row_slice(row, 1).span<std::int32_t>();
    EXPECT_TRUE(std::ranges::equal(found, std::span(order).first(5))) << row;
    EXPECT_NEAR(top.output("top_values").row_slice(row, 1).span<float>()[4], values[static_cast<std::size_t>(order[4])],
                1e-6);
  }
}

TEST(DecoderTrunk, top_k_rest_is_the_log_probabilities_of_the_largest_and_of_all_others) {
  Bench bench;
  const Batch batch = Batch::random(5, {12, 12, 12, 12, 12, 12, 3}, 31);
  const DataShape data{12, 31, "bytes"};  // the last 6 of 37 rows lack tokens
  for (const std::int64_t k : {5, 31}) {
    DecoderTrunk all(bench.context("teacher", false),
                     {tiny(DecoderFamily::gpt2, true), TeacherOutput::logits, 1, data});
    DecoderTrunk few(bench.context("teacher", false),
                     {tiny(DecoderFamily::gpt2, true), TeacherOutput::top_k_rest, k, data});
    MicroBatch logits(bench, all, batch, Pass::evaluate), top(bench, few, batch, Pass::evaluate);
    logits.forward();
    top.forward();
    for (std::int64_t row = 0; row < batch.rows(); ++row) {
      const auto u = logits.output("logits").row_slice(row, 1).span<float>().first(31);
      double sum = 0;
      for (const float logit : u) sum += std::exp(double{logit});
      double rest = 1;
      const auto tokens = top.output("top_indices").row_slice(row, 1).span<std::int32_t>();
      const auto values = top.output("top_values").row_slice(row, 1).span<float>();
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const double p = std::exp(double{u[static_cast<std::size_t>(tokens[i])]}) / sum;
        EXPECT_NEAR(values[i], std::log(p), 1e-5);
        rest -= p;
      }
      const float found = top.output("rest").span<float>()[static_cast<std::size_t>(row)];
      if (k == 31) {
        EXPECT_EQ(found, least_log_probability);
      } else {
        EXPECT_NEAR(found, std::log(rest), 1e-5);
      }
    }
  }
}

TEST(DecoderTrunk, a_frozen_tied_head_is_packed_before_forward_passes_share_it) {
  Bench bench;
  Batch batch = Batch::random(5, {9, 1, 12}, 36);  // token 36 of 37 is never read
  const DecoderTrunk::Options options{tiny(DecoderFamily::gpt2, true), TeacherOutput::logits, 1, {}};
  DecoderTrunk live(bench.context("teacher", false, DType::bf16), options),
      frozen(bench.context("teacher", false, DType::bf16), options);
  frozen.freeze();
  // Changed without notice: a head packed only now would show it.
  std::ranges::fill(frozen.parameters().find("transformer.wte.weight")->value().row_slice(36, 1).span<float>(), 9.0F);
  MicroBatch expected(bench, live, batch, Pass::evaluate, DType::bf16),
      found(bench, frozen, batch, Pass::evaluate, DType::bf16);
  expected.forward();
  found.forward();
  EXPECT_EQ(largest_difference(found.output("logits"), expected.output("logits")), 0);
}

TEST(DecoderTrunk, only_hidden_states_can_be_trained_through) {
  Bench bench;
  const auto build = [&] {
    DecoderTrunk(bench.context("t", true), {tiny(DecoderFamily::gpt2, true), TeacherOutput::logits, 1, {}});
  };
  EXPECT_NE(job_error_of(build).find("boundary = \"hidden\""), std::string::npos) << job_error_of(build);
}

TEST(DecoderTrunk, a_top_k_beyond_the_vocabulary_is_refused_with_both_numbers) {
  Bench bench;
  const auto build = [&] {
    DecoderTrunk(bench.context("t", false), {tiny(DecoderFamily::gpt2, true), TeacherOutput::top_k, 38, {}});
  };
  EXPECT_EQ(job_error_of(build), "t: top_k = 38 must lie between 1 and the vocabulary of 37");
}

TEST(DecoderTrunk, top_k_rest_is_refused_by_name_where_it_is_not_computed) {
  Bench bench;
  SectionContext context = bench.context("t", false);
  context.meta = true;
  DecoderConfig wide = tiny(DecoderFamily::gpt2, true);
  wide.width = 64;  // head size that GPUs support
  const auto build = [&] { DecoderTrunk(context, {wide, TeacherOutput::top_k_rest, 5, {}}); };
  context.for_cuda = true;
  EXPECT_NE(job_error_of(build).find("t: boundary = \"top_k_rest\" is supported on CPUs only"), std::string::npos)
      << job_error_of(build);
  context.for_cuda = false;
  context.parallel.layout.tensor = 2;
  EXPECT_NE(job_error_of(build).find("needs the whole output layer on a rank; leave tensor at 1"), std::string::npos);
}

TEST(LanguageModelHead, a_tied_model_cannot_be_cut_before_its_head) {
  Bench bench;
  const auto build = [&] { LanguageModelHead(bench.context("head", true), {tiny(DecoderFamily::gpt2, true), {}}); };
  EXPECT_NE(job_error_of(build).find("set tied = false"), std::string::npos) << job_error_of(build);
}

TEST(DecoderLm, a_sample_longer_than_the_positions_is_refused_at_the_start) {
  Bench bench;
  const auto build = [&](std::int64_t sequence, std::int64_t vocabulary) {
    return job_error_of([&] {
      DecoderLm(bench.context("lm", true), {tiny(DecoderFamily::gpt2, true), {sequence, vocabulary, ""}});
    });
  };
  EXPECT_EQ(build(12, 37), "(no error)");
  EXPECT_EQ(build(13, 37),
            "lm: samples of 13 tokens do not fit positions = 12; shorten data.sequence (data.longest of drawn "
            "lengths) to 12 or raise positions");
  EXPECT_EQ(build(12, 38),
            "lm: vocabulary = 37 is smaller than the corpus' vocabulary of 38 tokens; set it to 38 or more");
}

TEST(DecoderLm, a_shape_that_is_no_decoder_is_refused) {
  Bench bench;
  const auto build = [&](const std::function<void(DecoderConfig&)>& change) {
    DecoderConfig config = tiny(DecoderFamily::llama, true);
    change(config);
    return job_error_of([&] { DecoderLm(bench.context("lm", false), {config, {}}); });
  };
  EXPECT_EQ(build([](DecoderConfig& config) { config.heads = 3; }), "lm: heads = 3 does not divide width = 16");
  EXPECT_EQ(build([](DecoderConfig& config) { config.kv_heads = 3; }), "lm: kv_heads = 3 does not divide heads = 4");
  EXPECT_EQ(build([](DecoderConfig& config) { config.layers = 0; }),
            "lm: layers = 0 is too small; it must be at least 1");
  EXPECT_NE(build([](DecoderConfig& config) { config.heads = 16; }).find("even head size"), std::string::npos);
}

double deviation(Parameter& parameter) {
  double sum = 0;
  for (const float value : parameter.value().span<float>()) sum += double{value} * value;
  return std::sqrt(sum / static_cast<double>(parameter.shape().elements()));
}

TEST(DecoderStack, initial_values_are_those_of_gpt2) {
  Bench bench;
  DecoderConfig config = tiny(DecoderFamily::gpt2, true);
  config.width = 64;
  config.ffn = 256;
  config.layers = 8;
  DecoderLm model(bench.context("lm", false), {config, {}});
  Parameters& parameters = model.parameters();
  // The estimated deviation of n values is off by 1 / sqrt(2 n): below 1.2 % for 4096 values; five times as much.
  EXPECT_NEAR(deviation(*parameters.find("transformer.h.3.attn.c_attn.weight")), 0.02, 0.02 * 0.06);
  EXPECT_NEAR(deviation(*parameters.find("transformer.h.3.attn.c_proj.weight")), 0.02 / 4, 0.005 * 0.06);
  EXPECT_NEAR(deviation(*parameters.find("transformer.h.3.mlp.c_proj.weight")), 0.02 / 4, 0.005 * 0.06);
  EXPECT_EQ(deviation(*parameters.find("transformer.ln_f.weight")), 1.0);
  EXPECT_EQ(deviation(*parameters.find("transformer.h.0.mlp.c_fc.bias")), 0.0);
}

TEST(DecoderStack, values_of_a_parameter_do_not_depend_on_how_many_others_there_are) {  // SE-3
  Bench bench;
  DecoderConfig more = tiny(DecoderFamily::gpt2, false);
  more.vocabulary = 50;
  DecoderLm small(bench.context("lm", false), {tiny(DecoderFamily::gpt2, true), {}}),
      large(bench.context("lm", false), {more, {}});
  for (const char* name : {"transformer.h.1.attn.c_attn.weight", "transformer.wpe.weight"}) {
    EXPECT_EQ(largest_difference(small.parameters().find(name)->value(), large.parameters().find(name)->value()), 0);
  }
}

TEST(DecoderStack, matrices_and_embeddings_decay_norms_and_biases_do_not) {
  Bench bench;
  DecoderLm model(bench.context("lm", true), {tiny(DecoderFamily::gpt2, true), {}});
  Parameters& parameters = model.parameters();
  for (Parameter& parameter : parameters.all()) {
    const auto offset = parameter.value().data<float>() - parameters.values().data();
    EXPECT_EQ(static_cast<std::size_t>(offset) < parameters.decayed_elements(), parameter.shape().rank() == 2)
        << parameter.name();
  }
}

TEST(DecoderCost, counts_products_attention_and_head) {
  Bench bench;
  // Per token and layer: qkv (16 x 32), output (16 x 16), gate, up and down (16 x 24 each); T = 10.
  const double products = 2.0 * 10 * 16 * (32 + 16 + 3 * 24);
  const double scores = 2.0 * 10 * 10 * 16;
  const double head = 2.0 * 10 * 16 * 37;
  const DecoderConfig config = tiny(DecoderFamily::llama, false);
  EXPECT_DOUBLE_EQ(DecoderLm(bench.context("lm", true), {config, {}}).cost({10}).flops, 2 * (products + scores) + head);
  EXPECT_DOUBLE_EQ(DecoderTrunk(bench.context("t", true), {config, TeacherOutput::hidden, 1, {}}).cost({10}).flops,
                   2 * (products + scores));
  EXPECT_DOUBLE_EQ(LanguageModelHead(bench.context("h", true), {config, {}}).cost({10}).flops, head);
}

TEST(DecoderCost, knows_a_layers_mixer) {
  Bench bench;
  const DecoderConfig config = tiny(DecoderFamily::lfm2, false);
  // Per token: gates and input (16 x 48), output (16 x 16), gate, up and down (16 x 24 each), a filter with 3 rows.
  const double convolution = 2.0 * 10 * 16 * (48 + 16 + 3 * 24) + 2.0 * 10 * 16 * 3;
  const double attention = 2.0 * 10 * 16 * (32 + 16 + 3 * 24) + 2.0 * 10 * 10 * 16;
  const LayerCosts costs = DecoderLm(bench.context("lm", true), {config, {}}).layer_costs({10});
  ASSERT_EQ(costs.layers.size(), 2U);
  EXPECT_DOUBLE_EQ(costs.layers[0], convolution);
  EXPECT_DOUBLE_EQ(costs.layers[1], attention);
  SectionContext last = bench.context("lm", true);
  last.stage = {.index = 1, .count = 2, .first_layer = 1, .layers = 1};
  EXPECT_DOUBLE_EQ(DecoderTrunk(last, {config, TeacherOutput::hidden, 1, {}}).cost({10}).flops, attention);
  EXPECT_GT(body_bytes(config, 10, DType::f32, 0), body_bytes(config, 10, DType::f32, 1));
}

TEST(DecoderCost, knows_latent_attention) {
  Bench bench;
  const DecoderConfig config = tiny(DecoderFamily::deepseek_v3, false);
  // Latents for queries (16 x 6), for keys, with the part that turns (16 x 14), heads (6 x 48, 10 x 60), output (28 x
  // 16), two experts and the shared one (16 x 24 each), the router (16 x 4).
  const double products = 16 * (6 + 14) + 6 * 48 + 10 * 60 + 28 * 16 + 16 * (3 * 3 * 8 + 4);
  const LayerCosts costs = DecoderLm(bench.context("lm", true), {config, {}}).layer_costs({10});
  EXPECT_DOUBLE_EQ(costs.layers[0], 2.0 * 10 * products + 2.0 * 10 * 10 * 48);
}

TEST(LatentAttention, has_adapters_on_its_output_alone) {
  Bench bench;
  SectionContext context = bench.context("lm", true);
  context.lora = {4, 8, false, true, false};
  const DecoderConfig config = tiny(DecoderFamily::deepseek_v3, false);
  EXPECT_FALSE(DecoderLm(context, {config, {}}).state().empty());
  context.lora.qkv = true;
  try {
    const DecoderLm model(context, {config, {}});
    ADD_FAILURE() << "accepted";
  } catch (const JobError& error) {
    EXPECT_STREQ(error.what(), "lm.lora.on: adapters of latent attention are not supported; leave \"qkv\" out");
  }
}

TEST(DecoderCost, knows_a_delta_rule_and_gated_attention) {
  Bench bench;
  const DecoderConfig config = tiny(DecoderFamily::qwen3_5_text, false);
  // 2 key heads of 8 and 4 value heads of 5 columns. Per token: q, k, v, z, b and a (16 x 80), output (20 x 16), gate,
  // up and down (16 x 24 each), a filter of 4 rows over 52 columns; queries with keys, and with queries, of 64 rows; 3
  // products with states and one and a half with a chunk's 64 rows.
  const double delta = 2.0 * 10 * (16 * (80 + 20 + 3 * 24) + 4 * 52 + 2 * 64 * 16 + 3 * 8 * 20 + 1.5 * 64 * 20);
  // Queries and gates (16 x 64), keys and values (16 x 32), output (32 x 16).
  const double attention = 2.0 * 10 * 16 * (64 + 32 + 32 + 3 * 24) + 2.0 * 10 * 10 * 32;
  const LayerCosts costs = DecoderLm(bench.context("lm", true), {config, {}}).layer_costs({10});
  ASSERT_EQ(costs.layers.size(), 2U);
  EXPECT_DOUBLE_EQ(costs.layers[0], delta);
  EXPECT_DOUBLE_EQ(costs.layers[1], attention);
}

TEST(DecoderCost, kept_bytes_are_near_what_the_arena_holds_between_forward_and_backward) {
  Bench bench;
  const Batch batch = Batch::random(5, {12}, 37);
  for (const DecoderFamily family : {DecoderFamily::gpt2, DecoderFamily::llama, DecoderFamily::lfm2,
                                     DecoderFamily::qwen3_5_text, DecoderFamily::deepseek_v3}) {
    DecoderTrunk trunk(bench.context("t", true), {tiny(family, false), TeacherOutput::hidden, 1, {}});
    MicroBatch pass(bench, trunk, batch);
    pass.forward();
    const auto held = static_cast<double>(bench.arena.used_bytes());
    // The arena also holds closures and per-row statistics, which are large relative to so small a width.
    EXPECT_GT(held, trunk.cost({12}).bytes) << name_of(family);
    EXPECT_LT(held, 1.6 * trunk.cost({12}).bytes) << name_of(family);
  }
}

}  // namespace
}  // namespace maestro::testing
