// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/token_sampler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

using Logits = std::vector<float>;

constexpr int draws = 20000;

/// Returns the tokens' shares in many draws.
std::map<std::int32_t, double> shares(const SamplingOptions& options, const Logits& logits) {
  TokenSampler sampler(options);
  std::map<std::int32_t, double> found;
  for (int i = 0; i < draws; ++i) found[sampler.choose(logits).token] += 1.0 / draws;
  return found;
}

/// Logits whose softmax is 1/8, 1/2, 1/16, 1/4, ...
const Logits halves{std::log(0.125F), std::log(0.5F), std::log(0.0625F), std::log(0.25F), std::log(0.0625F)};

std::string refusal(const SamplingOptions& options) {
  try {
    const TokenSampler sampler(options);
  } catch (const JobError& error) {
    return error.what();
  }
  return "";
}

TEST(TokenSampler, without_temperature_the_largest_logit_wins_and_the_lower_of_equal_ids) {
  TokenSampler sampler({});
  EXPECT_EQ(sampler.choose(halves).token, 1);
  EXPECT_EQ(sampler.choose(Logits{0, 3, 3, -1}).token, 1);
}

TEST(TokenSampler, temperature_one_draws_by_the_softmax) {
  const auto found = shares({.temperature = 1, .seed = 3}, halves);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const double p = std::exp(halves[i]);
    // Five standard deviations of a share.
    EXPECT_NEAR(found.at(static_cast<std::int32_t>(i)), p, 5 * std::sqrt(p * (1 - p) / draws));
  }
}

TEST(TokenSampler, temperature_divides_the_logits) {
  const auto found = shares({.temperature = 0.5, .seed = 4}, Logits{0, std::log(2.0F)});
  EXPECT_NEAR(found.at(1), 0.8, 0.02);
}

TEST(TokenSampler, top_k_keeps_the_likeliest) {
  const auto found = shares({.temperature = 1, .top_k = 3}, halves);
  EXPECT_EQ(found.size(), 3U);
  EXPECT_NEAR(found.at(1), 4.0 / 7, 0.02);
  EXPECT_NEAR(found.at(3), 2.0 / 7, 0.02);
  EXPECT_NEAR(found.at(0), 1.0 / 7, 0.02);
  EXPECT_EQ(shares({.temperature = 1, .top_k = 4}, halves).count(4), 0U);  // if logits are equal, the lower id is kept
}

TEST(TokenSampler, top_p_keeps_the_fewest_that_reach_it) {
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0.4}, halves).size(), 1U);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0.74}, halves).size(), 2U);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0.76}, halves).size(), 3U);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 1e-9}, halves).size(), 1U);
}

TEST(TokenSampler, top_p_counts_what_temperature_and_top_k_left) {
  // At temperature 1/2 the shares of the three likeliest are 16 : 4 : 1.
  EXPECT_EQ(shares({.temperature = 0.5, .top_k = 3, .top_p = 0.75}, halves).size(), 1U);
  EXPECT_EQ(shares({.temperature = 0.5, .top_k = 3, .top_p = 0.94}, halves).size(), 2U);
  EXPECT_EQ(shares({.temperature = 0.5, .top_k = 3, .top_p = 0.96}, halves).size(), 3U);
}

TEST(TokenSampler, a_repetition_penalty_counts_once_for_every_token_of_the_sequence) {
  TokenSampler sampler({.repetition_penalty = 1.5});
  const std::vector<std::int32_t> sequence{1, 1, 1};
  EXPECT_EQ(sampler.choose(Logits{1.9F, 3, 0}, sequence).token, 1);  // 3 / 1.5 = 2
  EXPECT_EQ(sampler.choose(Logits{2.1F, 3, 0}, sequence).token, 0);
  EXPECT_EQ(sampler.choose(Logits{-2.9F, -2, -9}, sequence).token, 0);  // -2 * 1.5 = -3
  EXPECT_EQ(sampler.choose(Logits{-3.1F, -2, -9}, sequence).token, 1);
  EXPECT_EQ(sampler.choose(Logits{2.1F, 3, 0}).token, 1);
}

TEST(TokenSampler, ids_without_a_logit_are_not_penalised) {  // images, and ids that must not be chosen
  TokenSampler sampler({.repetition_penalty = 1.5});
  EXPECT_EQ(sampler.choose(Logits{1.9F, 3, 0}, std::vector<std::int32_t>{-1, 1, 3}).token, 1);
}

TEST(TokenSampler, log_probabilities_are_those_of_the_draw) {
  TokenSampler drawn({.temperature = 1, .top_k = 2, .seed = 4});
  for (int i = 0; i < 50; ++i) {
    const TokenSampler::Choice choice = drawn.choose(halves);
    EXPECT_NEAR(choice.log_probability, std::log(choice.token == 1 ? 2.0 / 3 : 1.0 / 3), 1e-6);
  }
  TokenSampler likeliest({.log_probabilities = true});
  EXPECT_NEAR(likeliest.choose(halves).log_probability, std::log(0.5), 1e-6);
  EXPECT_EQ(TokenSampler({}).choose(halves).log_probability, 0);
}

TEST(TokenSampler, equal_seeds_choose_equal_tokens) {
  const auto drawn = [](std::uint64_t seed) {
    TokenSampler sampler({.temperature = 1.5, .seed = seed});
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 64; ++i) tokens.push_back(sampler.choose(halves).token);
    return tokens;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST(TokenSampler, infinite_logits_are_certain_or_impossible) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(shares({.temperature = 1}, Logits{-infinity, 1, -infinity}).size(), 1U);
  EXPECT_EQ(shares({.temperature = 1}, Logits{3, infinity, 3}).count(0), 0U);
}

TEST(TokenSampler, a_logit_that_is_no_number_is_an_error) {
  TokenSampler sampler({});
  EXPECT_THROW((void)sampler.choose(Logits{0, NAN}), JobError);
}

TEST(TokenSampler, wrong_options_are_refused_by_name) {
  EXPECT_EQ(refusal({.temperature = -1}), "temperature = -1 is out of range; it is 0 (greedy) or above");
  EXPECT_EQ(refusal({.top_k = -2}), "top_k = -2 is out of range; it is 0 (all tokens) or above");
  EXPECT_EQ(refusal({.top_p = 0}), "top_p = 0 is out of range; it is above 0 and at most 1");
  EXPECT_EQ(refusal({.top_p = 1.5}), "top_p = 1.5 is out of range; it is above 0 and at most 1");
}

}  // namespace
}  // namespace maestro
