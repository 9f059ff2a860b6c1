// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/completions.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "sections/decoder/decoder_trunk.hpp"
#include "sections/state_io.hpp"
#include "tests/sections/random_decoder.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

DecoderConfig shape(DecoderFamily family, std::int64_t heads, std::int64_t kv_heads) {
  DecoderConfig config;
  config.family = family;
  config.layers = 3;
  config.width = 48;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.ffn = 56;
  config.vocabulary = 101;
  config.positions = 700;
  config.tied = heads != 2;
  return with_kinds_of_layers(config);
}

Tokens random_tokens(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  Tokens tokens(count);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random.below(101));
  return tokens;
}

/// A random model in a folder, and the logits of forward passes without a cache.
class Stored {
 public:
  Stored(const DecoderConfig& config, DType precision)
      : precision_(precision), whole_(bench.context("lm", false, precision), {config, TeacherOutput::logits, 1, {}}) {
    randomise(whole_, 5);
    save_weights(whole_, folder()).or_throw();
  }
  [[nodiscard]] std::filesystem::path folder() const { return folder_.path() / "model"; }
  [[nodiscard]] std::vector<float> logits(const Tokens& tokens) {
    const Batch batch(tokens, tokens, {0, static_cast<std::int32_t>(tokens.size())});
    MicroBatch pass(bench, whole_, batch, Pass::evaluate, precision_);
    pass.forward();
    const auto all = pass.output("logits").span<float>();
    return {all.end() - whole_.decoder().vocabulary, all.end()};
  }
  Bench bench;

 private:
  DType precision_;
  DecoderTrunk whole_;
  TemporaryFolder folder_;
};

/// Begins a sequence and computes its prompt.
void read_prompt(Generation& generation, std::int64_t slot, const Tokens& prompt) {
  generation.begin(slot, prompt);
  while (!generation.advance(slot)) {
  }
}

/// Appends a token in slot 0.
void append(Generation& generation, std::int32_t token) {
  const NextToken next[] = {{0, token}};
  generation.append(next);
}

/// Returns the continuation of a prompt by itself.
Completion written(Generation& generation, const Tokens& prompt, const ContinuationLimits& limits,
                   const SamplingOptions& sampling = {}) {
  const Prompt asked[] = {{.tokens = prompt, .seed = sampling.seed}};
  return complete(generation, asked, limits, sampling, 1).front();
}

double distance(std::span<const float> a, const std::vector<float>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < b.size(); ++i) worst = std::max(worst, std::abs(double{a[i]} - double{b[i]}));
  return worst;
}

struct Case {
  DecoderFamily family;
  std::int64_t heads;
  std::int64_t kv_heads;
};
class CachedDecoder : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] static DecoderConfig config() {
    return shape(GetParam().family, GetParam().heads, GetParam().kv_heads);
  }
};

/// GN-1, LC-1.
TEST_P(CachedDecoder, logits_equal_those_of_a_pass_over_the_whole_sequence) {
  Stored stored(config(), DType::f32);
  Generation generation(*stored.bench.ops, stored.folder(), DType::f32);
  for (const std::size_t prompt : {1, 9, 70}) {
    const Tokens tokens = random_tokens(prompt + 12, prompt);
    generation.reserve(1, std::ssize(tokens));
    read_prompt(generation, 0, {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(prompt)});
    for (std::size_t length = prompt; length < tokens.size(); ++length) {
      // Logits have magnitudes of some tens; sums have another order.
      EXPECT_LT(distance(generation.logits(), stored.logits({tokens.begin(), tokens.begin() + length})), 2e-4);
      append(generation, tokens[length]);
    }
    EXPECT_TRUE(generation.full(0));
  }
}

TEST_P(CachedDecoder, greedy_tokens_equal_those_of_repeated_whole_passes) {
  Stored stored(config(), DType::f32);
  Generation generation(*stored.bench.ops, stored.folder(), DType::f32);
  Tokens tokens = random_tokens(5, 3);
  const Completion completion = written(generation, tokens, {20});
  EXPECT_EQ(completion.finish, FinishReason::length);
  ASSERT_EQ(completion.tokens.size(), 20U);
  for (const std::int32_t token : completion.tokens) {
    const std::vector<float> logits = stored.logits(tokens);
    EXPECT_EQ(token, std::ranges::max_element(logits) - logits.begin());
    tokens.push_back(token);
  }
}

TEST_P(CachedDecoder, a_prompt_of_several_blocks_has_the_logits_of_one_pass) {
  Stored stored(config(), DType::f32);
  Generation generation(*stored.bench.ops, stored.folder(), DType::f32);
  const Tokens tokens = random_tokens(600, 8);
  generation.reserve(1, 600);
  read_prompt(generation, 0, tokens);
  EXPECT_LT(distance(generation.logits(), stored.logits(tokens)), 2e-4);
}

TEST_P(CachedDecoder, bf16_logits_agree_up_to_roundings_of_activations) {
  Stored stored(config(), DType::bf16);
  Generation generation(*stored.bench.ops, stored.folder(), DType::bf16);
  const Tokens tokens = random_tokens(40, 2);
  generation.reserve(1, 40);
  read_prompt(generation, 0, {tokens.begin(), tokens.begin() + 30});
  for (std::size_t i = 30; i < 40; ++i) append(generation, tokens[i]);
  const std::vector<float> wanted = stored.logits(tokens);
  const auto [least, most] = std::ranges::minmax(wanted);
  EXPECT_LT(distance(generation.logits(), wanted), 0.05 * (most - least));
}

/// Nine prompts, by number: the last two differ in their seeds alone, and one has several blocks.
Tokens prompt_of(std::size_t number) {
  if (number == 6) return random_tokens(530, 6);
  return number >= 7 ? random_tokens(30, 1) : random_tokens(13 * number + 4, number);
}

struct Asked {
  std::vector<Tokens> tokens;
  std::vector<Prompt> prompts;
  explicit Asked(std::span<const std::size_t> numbers) {
    for (const std::size_t number : numbers) tokens.push_back(prompt_of(number));
    for (const std::size_t number : numbers) {
      prompts.push_back({.tokens = tokens[prompts.size()], .seed = 100 + number});
    }
  }
};

bool same_bits(const Completion& a, const Completion& b) {
  return a.tokens == b.tokens && a.finish == b.finish && a.log_probabilities == b.log_probabilities;
}

using cpu::Bf16Products;
using cpu::Isa;

struct Arithmetic {
  Isa isa;
  Bf16Products products;
  DType precision;
};
std::vector<Arithmetic> all_arithmetic() {
  std::vector<Arithmetic> all;
  for (const Isa isa : cpu::supported_isas()) {
    for (const DType precision : {DType::f32, DType::bf16}) all.push_back({isa, Bf16Products::converted, precision});
  }
  if (cpu::native_bf16_supported()) all.push_back({Isa::avx512, Bf16Products::native, DType::bf16});
  return all;
}

/// Compares completions in slots, with other prompts in a random order, with completions of a prompt without others.
void expect_same_in_company(Generation& generation, const SamplingOptions& sampling) {
  std::vector<std::size_t> order(9);
  std::iota(order.begin(), order.end(), 0);
  std::vector<Completion> alone;
  for (const Prompt& prompt : Asked(order).prompts) {
    alone.push_back(complete(generation, {&prompt, 1}, {25, {7}}, sampling, 1).front());
  }
  EXPECT_EQ(alone[7].tokens == alone[8].tokens, sampling.temperature == 0);
  Random random(3);
  for (const std::int64_t slots : {1, 2, 3, 5, 8, 16}) {
    for (std::size_t at = order.size(); at > 1; --at) std::swap(order[at - 1], order[random.below(at)]);
    const Asked asked(order);
    const std::vector<Completion> together = complete(generation, asked.prompts, {25, {7}}, sampling, slots);
    for (std::size_t at = 0; at < order.size(); ++at) {
      EXPECT_TRUE(same_bits(together[at], alone[order[at]])) << slots << " slots, prompt " << order[at];
    }
  }
}

/// GN-2.
TEST_P(CachedDecoder, completions_have_the_same_bits_in_any_company) {
  const Stored stored(config(), DType::f32);
  for (const auto [isa, products, precision] : all_arithmetic()) {
    SCOPED_TRACE(::testing::Message() << name_of(isa) << ", " << name_of(precision));
    const cpu::CpuOperatorTable ops(isa, products);
    Generation generation(ops, stored.folder(), precision);
    expect_same_in_company(generation, {.log_probabilities = true});
    expect_same_in_company(generation, {.temperature = 1.3});
    expect_same_in_company(generation, {.repetition_penalty = 1.2, .temperature = 0.9, .top_k = 40, .top_p = 0.9});
  }
}

TEST_P(CachedDecoder, log_probabilities_are_those_of_the_model) {
  Stored stored(config(), DType::f32);
  Generation generation(*stored.bench.ops, stored.folder(), DType::f32);
  Tokens tokens = random_tokens(6, 4);
  for (const SamplingOptions& sampling :
       {SamplingOptions{.log_probabilities = true}, SamplingOptions{.temperature = 2, .seed = 5}}) {
    Tokens sequence = tokens;
    const Completion completion = written(generation, tokens, {8}, sampling);
    ASSERT_EQ(completion.log_probabilities.size(), completion.tokens.size());
    for (std::size_t at = 0; at < completion.tokens.size(); ++at) {
      const std::vector<float> logits = stored.logits(sequence);
      const double scale = sampling.temperature == 0 ? 1 : sampling.temperature;
      double sum = 0;
      for (const float logit : logits) sum += std::exp(logit / scale);
      const auto token = static_cast<std::size_t>(completion.tokens[at]);
      EXPECT_NEAR(completion.log_probabilities[at], logits[token] / scale - std::log(sum), 1e-3);
      sequence.push_back(completion.tokens[at]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(models, CachedDecoder,
                         ::testing::Values(Case{DecoderFamily::gpt2, 4, 4}, Case{DecoderFamily::gpt2, 1, 1},
                                           Case{DecoderFamily::llama, 4, 4}, Case{DecoderFamily::llama, 6, 2},
                                           Case{DecoderFamily::llama, 2, 1}, Case{DecoderFamily::lfm2, 4, 2},
                                           Case{DecoderFamily::qwen3_5_text, 4, 2},
                                           Case{DecoderFamily::deepseek_v3, 4, 4}),
                         [](const auto& test) {
                           return std::string(name_of(test.param.family)) + "_" + std::to_string(test.param.heads) +
                                  "_over_" + std::to_string(test.param.kv_heads);
                         });

class RecordedModel : public ::testing::TestWithParam<std::string> {};

TEST_P(RecordedModel, greedy_tokens_are_those_of_transformers) {
  const std::filesystem::path folder = reference_folder(GetParam());
  std::ifstream file(folder / "greedy.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 3U);
  const Bench bench;
  Generation generation(*bench.ops, folder, DType::f32);
  for (const auto& each : cases) {
    const auto prompt = each.at("prompt").get<Tokens>();
    ContinuationLimits limits;
    limits.stop_tokens = each.at("stop").get<Tokens>();
    limits.max_tokens = generation.decoder().positions - static_cast<std::int64_t>(prompt.size());
    Completion completion = written(generation, prompt, limits);
    // transformers returns the stop token, too.
    if (completion.finish == FinishReason::stop) completion.tokens.push_back(limits.stop_tokens[0]);
    EXPECT_EQ(completion.tokens, each.at("tokens").get<Tokens>());
  }
}

INSTANTIATE_TEST_SUITE_P(models, RecordedModel, ::testing::ValuesIn(recorded_decoders()),
                         [](const auto& test) { return test.param; });

class Continuation : public ::testing::Test {
 protected:
  Completion write(const Tokens& prompt, const ContinuationLimits& limits, const SamplingOptions& sampling = {}) {
    return written(generation, prompt, limits, sampling);
  }
  Stored stored{shape(DecoderFamily::llama, 4, 2), DType::f32};
  Generation generation{*stored.bench.ops, stored.folder(), DType::f32};
};

TEST_F(Continuation, a_stop_token_ends_it_and_is_left_out) {
  const Completion all = write({3, 1, 4}, {12, {}});
  const std::int32_t stop = all.tokens[7];
  const auto first = std::ranges::find(all.tokens, stop);
  const Completion stopped = write({3, 1, 4}, {12, {100, stop}});
  EXPECT_EQ(stopped.finish, FinishReason::stop);
  EXPECT_EQ(stopped.tokens, Tokens(all.tokens.begin(), first));
}

TEST_F(Continuation, it_ends_at_the_last_position) {
  const Completion written = write(random_tokens(697, 1), {50, {}});
  EXPECT_EQ(written.finish, FinishReason::length);
  EXPECT_EQ(written.tokens.size(), 4U);  // the last token needs no position
}

TEST_F(Continuation, an_earlier_sequence_leaves_nothing_behind) {
  const Completion alone = write({9, 9}, {10, {}});
  write(random_tokens(90, 4), {30, {}});
  EXPECT_EQ(write({9, 9}, {10, {}}).tokens, alone.tokens);
}

TEST_F(Continuation, no_tokens_are_no_work) {
  EXPECT_TRUE(write({1}, {0, {}}).tokens.empty());
}

TEST_F(Continuation, ids_that_the_tokenizer_lacks_are_not_chosen) {
  const SamplingOptions wild{.temperature = 50, .seed = 1};
  const auto largest = [](const Completion& completion) { return *std::ranges::max_element(completion.tokens); };
  EXPECT_GE(largest(write({3, 1, 4}, {60}, wild)), 40);
  EXPECT_LT(largest(write({3, 1, 4}, {60, {}, 40}, wild)), 40);
}

TEST_F(Continuation, changes_are_told_while_the_texts_grow) {
  const Tokens first{3, 1, 4}, second{5};
  const Prompt asked[] = {{.tokens = first}, {.tokens = second, .max_tokens = 2}};
  std::vector<std::pair<std::size_t, std::size_t>> lengths;
  const std::vector<Completion> completions = complete(
      generation, asked, {4}, {}, 2,
      [&](std::span<const Completion> all) { lengths.emplace_back(all[0].tokens.size(), all[1].tokens.size()); });
  // A prompt is read, and each sequence then grows by a token.
  EXPECT_EQ(lengths, (std::vector<std::pair<std::size_t, std::size_t>>{{2, 0}, {3, 2}, {4, 2}}));
  EXPECT_EQ(completions[0].tokens, write(first, {4}).tokens);
  EXPECT_EQ(completions[1].tokens, write(second, {2}).tokens);
}

TEST_F(Continuation, a_stop_token_has_a_probability) {
  const Completion all = write({3, 1, 4}, {12}, {.log_probabilities = true});
  const Completion stopped = write({3, 1, 4}, {12, {all.tokens[0]}}, {.log_probabilities = true});
  EXPECT_EQ(stopped.stop_token, all.tokens[0]);
  EXPECT_EQ(stopped.log_probabilities,
            std::vector<float>(all.log_probabilities.begin(), all.log_probabilities.begin() + 1));
}

TEST_F(Continuation, a_slot_holds_what_was_reserved) {
  generation.reserve(2, 5);
  EXPECT_EQ(generation.slots(), 2);
  EXPECT_THROW(generation.begin(1, random_tokens(6, 1)), JobError);
  const Tokens fits = random_tokens(5, 1);
  read_prompt(generation, 1, fits);
  EXPECT_TRUE(generation.full(1));
}

TEST_F(Continuation, a_prompt_that_does_not_fit_is_refused) {
  EXPECT_EQ(generation.refusal(Tokens()), "the prompt has no tokens; give it at least a single token");
  EXPECT_EQ(generation.refusal(random_tokens(701, 1)), "the prompt's 701 tokens do not fit the model's 700 positions");
  EXPECT_EQ(generation.refusal(Tokens{1, 101}), "the prompt has token 101, but the model's ids are 0 to 100");
  EXPECT_THROW(write({1, 101}, {1, {}}), JobError);
}

}  // namespace
}  // namespace maestro::testing
