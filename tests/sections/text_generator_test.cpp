// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/text_generator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sections/decoder/decoder_trunk.hpp"
#include "sections/state_io.hpp"
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
  return config;
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

/// GN-1.
TEST_P(CachedDecoder, logits_equal_those_of_a_pass_over_the_whole_sequence) {
  Stored stored(config(), DType::f32);
  TextGenerator generator(*stored.bench.ops, stored.folder(), DType::f32);
  for (const std::size_t prompt : {1, 9, 70}) {
    const Tokens tokens = random_tokens(prompt + 12, prompt);
    generator.begin(std::span(tokens).first(prompt), 12);
    for (std::size_t length = prompt; length < tokens.size(); ++length) {
      // Logits have magnitudes of some tens; sums have another order.
      EXPECT_LT(distance(generator.logits(), stored.logits({tokens.begin(), tokens.begin() + length})), 2e-4);
      generator.append(tokens[length]);
    }
    EXPECT_TRUE(generator.full());
  }
}

TEST_P(CachedDecoder, greedy_tokens_equal_those_of_repeated_whole_passes) {
  Stored stored(config(), DType::f32);
  TextGenerator generator(*stored.bench.ops, stored.folder(), DType::f32);
  Tokens tokens = random_tokens(5, 3), written;
  TokenSampler sampler({});
  const auto take = [&](std::int32_t token) { written.push_back(token); };
  EXPECT_EQ(generator.continue_prompt(tokens, {20, {}}, sampler, take), Finish::length);
  ASSERT_EQ(written.size(), 20U);
  for (const std::int32_t token : written) {
    const std::vector<float> logits = stored.logits(tokens);
    EXPECT_EQ(token, std::ranges::max_element(logits) - logits.begin());
    tokens.push_back(token);
  }
}

TEST_P(CachedDecoder, a_prompt_of_several_blocks_has_the_logits_of_one_pass) {
  Stored stored(config(), DType::f32);
  TextGenerator generator(*stored.bench.ops, stored.folder(), DType::f32);
  const Tokens tokens = random_tokens(600, 8);
  generator.begin(tokens, 0);
  EXPECT_LT(distance(generator.logits(), stored.logits(tokens)), 2e-4);
}

TEST_P(CachedDecoder, bf16_logits_agree_up_to_roundings_of_activations) {
  Stored stored(config(), DType::bf16);
  TextGenerator generator(*stored.bench.ops, stored.folder(), DType::bf16);
  const Tokens tokens = random_tokens(40, 2);
  generator.begin(std::span(tokens).first(30), 10);
  for (std::size_t i = 30; i < 40; ++i) generator.append(tokens[i]);
  const std::vector<float> wanted = stored.logits(tokens);
  const auto [least, most] = std::ranges::minmax(wanted);
  EXPECT_LT(distance(generator.logits(), wanted), 0.05 * (most - least));
}

INSTANTIATE_TEST_SUITE_P(models, CachedDecoder,
                         ::testing::Values(Case{DecoderFamily::gpt2, 4, 4}, Case{DecoderFamily::gpt2, 1, 1},
                                           Case{DecoderFamily::llama, 4, 4}, Case{DecoderFamily::llama, 6, 2},
                                           Case{DecoderFamily::llama, 2, 1}),
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
  TextGenerator generator(*bench.ops, folder, DType::f32);
  TokenSampler sampler({});
  for (const auto& each : cases) {
    const auto prompt = each.at("prompt").get<Tokens>();
    ContinuationLimits limits;
    limits.stop_tokens = each.at("stop").get<Tokens>();
    limits.max_tokens = generator.decoder().positions - static_cast<std::int64_t>(prompt.size());
    Tokens written;
    const Finish finish =
        generator.continue_prompt(prompt, limits, sampler, [&](std::int32_t token) { written.push_back(token); });
    if (finish == Finish::stop) written.push_back(limits.stop_tokens[0]);  // transformers returns it, too
    EXPECT_EQ(written, each.at("tokens").get<Tokens>());
  }
}

INSTANTIATE_TEST_SUITE_P(models, RecordedModel, ::testing::ValuesIn(recorded_decoders()),
                         [](const auto& test) { return test.param; });

class Continuation : public ::testing::Test {
 protected:
  struct Written {
    Tokens tokens;
    Finish finish = Finish::length;
  };
  Written write(const Tokens& prompt, const ContinuationLimits& limits, const SamplingOptions& sampling = {}) {
    Written written;
    TokenSampler sampler(sampling);
    written.finish = generator.continue_prompt(prompt, limits, sampler,
                                               [&](std::int32_t token) { written.tokens.push_back(token); });
    return written;
  }
  Stored stored{shape(DecoderFamily::llama, 4, 2), DType::f32};
  TextGenerator generator{*stored.bench.ops, stored.folder(), DType::f32};
};

TEST_F(Continuation, a_stop_token_ends_it_and_is_left_out) {
  const Written all = write({3, 1, 4}, {12, {}});
  const std::int32_t stop = all.tokens[7];
  const auto first = std::ranges::find(all.tokens, stop);
  const Written stopped = write({3, 1, 4}, {12, {100, stop}});
  EXPECT_EQ(stopped.finish, Finish::stop);
  EXPECT_EQ(stopped.tokens, Tokens(all.tokens.begin(), first));
}

TEST_F(Continuation, it_ends_at_the_last_position) {
  const Written written = write(random_tokens(697, 1), {50, {}});
  EXPECT_EQ(written.finish, Finish::length);
  EXPECT_EQ(written.tokens.size(), 4U);  // the last token needs no position
}

TEST_F(Continuation, an_earlier_sequence_leaves_nothing_behind) {
  const Written alone = write({9, 9}, {10, {}});
  write(random_tokens(90, 4), {30, {}});
  EXPECT_EQ(write({9, 9}, {10, {}}).tokens, alone.tokens);
}

TEST_F(Continuation, no_tokens_are_no_work) {
  EXPECT_TRUE(write({1}, {0, {}}).tokens.empty());
}

TEST_F(Continuation, a_prompt_that_does_not_fit_is_refused) {
  EXPECT_EQ(generator.refusal(Tokens()), "the prompt has no tokens; give it at least a single token");
  EXPECT_EQ(generator.refusal(random_tokens(701, 1)), "the prompt's 701 tokens do not fit the model's 700 positions");
  EXPECT_EQ(generator.refusal(Tokens{1, 101}), "the prompt has token 101, but the model's ids are 0 to 100");
  EXPECT_THROW(write({1, 101}, {1, {}}), JobError);
}

}  // namespace
}  // namespace maestro::testing
