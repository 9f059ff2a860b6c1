// SPDX-License-Identifier: Apache-2.0
// Losses of a student whose teacher gives k tokens and the probability of all others. Tolerances as in loss_test.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/ops/loss_cases.hpp"
#include "tests/ops/recorded_cases.hpp"

namespace maestro::cpu {
namespace {

using testing::Recorded;
using testing::Values;
using testing::worst_error;

constexpr Divergence every_divergence[] = {Divergence::forward_kl, Divergence::reverse_kl, Divergence::js};

LossProblem recorded_outcomes(const Recorded& recorded, const nlohmann::json& note) {
  LossProblem p;
  p.rows = 11;
  p.width = 12;
  p.teacher_width = 1;
  p.vocabulary = 75;
  p.teacher_vocabulary = 67;
  p.shared = 67;
  p.k = 6;
  p.hidden = recorded.at("hidden");
  p.head = recorded.at("head");
  p.targets = recorded.at("targets");
  p.teacher_hidden.resize(11);
  p.teacher_head.resize(67);
  p.teacher_logits.resize(11 * 67);
  p.teacher_values = recorded.at("teacher_values");
  p.teacher_indices = recorded.at("teacher_indices");
  p.teacher_rest = recorded.at("teacher_rest");
  p.boundary = TeacherOutput::top_k_rest;
  const auto name = note["divergence"].get<std::string>();
  p.divergence = name == "js" ? Divergence::js : name == "reverse_kl" ? Divergence::reverse_kl : Divergence::forward_kl;
  p.temperature = note["temperature"];
  p.alpha = note["alpha"];
  p.beta = note["beta"];
  p.scale = note["scale"];
  return p;
}

TEST_P(LossOnIsa, over_named_tokens_and_the_rest_agrees_with_pytorch) {
  const Recorded recorded = testing::read_recorded("bucket_losses.safetensors");
  ASSERT_EQ(recorded.cases.size(), 9U);
  for (const auto& note : recorded.cases) {
    for (const LossLimits& limits : {LossLimits{}, computing_again}) {
      SCOPED_TRACE(note.dump());
      const auto name = note["name"].get<std::string>();
      LossRun run = setup();
      run.limits = limits;
      const LossAnswer got = compute(recorded_outcomes(recorded, note), run);
      const Values& sums = recorded.at(name + ".sums");
      expect_near_sums(got.sums, {sums[0], sums[1], sums[2], sums[3], 8}, 1e-5);
      EXPECT_EQ(got.sums.tokens, 8);
      EXPECT_LT(worst_error(got.dhidden, recorded.at(name + ".dhidden")), gradient_tolerance());
      EXPECT_LT(worst_error(got.dhead, recorded.at(name + ".dhead")), gradient_tolerance());
    }
  }
}

TEST_P(LossOnIsa, naming_every_token_with_its_probability_is_the_dense_divergence) {
  for (const Divergence divergence : every_divergence) {
    for (const double temperature : {1.0, 1.7}) {
      LossProblem problem = small_problem();
      problem.divergence = divergence;
      problem.temperature = temperature;
      problem.beta = 0.3;
      problem.boundary = TeacherOutput::logits;
      const LossAnswer dense = compute(problem, setup());
      problem.k = problem.shared;
      problem.teacher_values.clear();
      problem.teacher_indices.clear();
      for (std::int64_t r = 0; r < problem.rows; ++r) {
        for (std::int64_t v = problem.shared; v-- > 0;) {
          problem.teacher_indices.push_back(static_cast<double>(v));
          problem.teacher_values.push_back(problem.teacher_logits[static_cast<std::size_t>(r * 33 + v)]);
        }
      }
      const LossAnswer named = compute(with_rest(problem), setup());
      EXPECT_NEAR(named.sums.kl, dense.sums.kl, 1e-5 * dense.sums.kl);
      EXPECT_LT(worst_error(named.dhidden, dense.dhidden), gradient_tolerance());
      EXPECT_LT(worst_error(named.dhead, dense.dhead), gradient_tolerance());
    }
  }
}

TEST_P(LossOnIsa, entries_without_a_token_are_left_out_of_the_outcomes) {
  for (const Divergence divergence : every_divergence) {
    LossProblem problem = with_rest(small_problem());
    problem.divergence = divergence;
    const LossAnswer before = compute(problem, setup());
    LossProblem wider = problem;
    wider.k = 6;
    wider.teacher_indices.clear();
    wider.teacher_values.clear();
    for (std::size_t r = 0; r < 9; ++r) {
      for (std::size_t i = 0; i < 4; ++i) {
        wider.teacher_indices.push_back(problem.teacher_indices[r * 4 + i]);
        wider.teacher_values.push_back(problem.teacher_values[r * 4 + i]);
      }
      for (std::size_t i = 0; i < 2; ++i) wider.teacher_indices.push_back(-1);
      for (std::size_t i = 0; i < 2; ++i) wider.teacher_values.push_back(least_log_probability);
    }
    const LossAnswer after = compute(wider, setup());
    EXPECT_EQ(before.sums.total, after.sums.total);
    EXPECT_EQ(before.dhidden, after.dhidden);
    wider.teacher_indices.assign(wider.teacher_indices.size(), -1);
    wider.alpha = 1;
    const LossAnswer nothing = compute(wider, setup());  // a single outcome
    EXPECT_NEAR(nothing.sums.kl, 0, 1e-12);
    EXPECT_LT(worst_error(nothing.dhidden, Values(nothing.dhidden.size(), 0), 1), 1e-6);
  }
}

/// Returns a row whose logits equal `head` (V, 1), with a teacher that names token 0.
LossProblem one_row(const Values& logits, double log_p, double log_rest) {
  LossProblem p;
  p.rows = p.width = p.teacher_width = p.k = 1;
  p.vocabulary = p.teacher_vocabulary = p.shared = static_cast<std::int64_t>(logits.size());
  p.hidden = {1};
  p.head = logits;
  p.targets = {0};
  p.teacher_hidden = {1};
  p.teacher_head = p.teacher_logits = Values(logits.size(), 0);
  p.teacher_values = {log_p};
  p.teacher_indices = {0};
  p.teacher_rest = {log_rest};
  p.boundary = TeacherOutput::top_k_rest;
  p.alpha = 1;
  return p;
}

TEST_P(LossOnIsa, a_rest_far_below_one_keeps_its_digits) {
  // The student's rest is 3 e^-40, which 1 - q_0 cannot represent.
  Values logits(4, -20);
  logits[0] = 20;
  LossProblem problem = one_row(logits, std::log(0.9), std::log(0.1));
  const double log_rest = std::log(3.0) - 40;
  const LossAnswer forward = compute(problem, setup());
  EXPECT_NEAR(forward.sums.kl, 0.9 * std::log(0.9) + 0.1 * (std::log(0.1) - log_rest), 1e-5);
  EXPECT_NEAR(forward.dhead[0], 0.1, 2e-4);                                           // bf16
  for (std::size_t v = 1; v < 4; ++v) EXPECT_NEAR(forward.dhead[v], -0.1 / 3, 2e-4);  // equal shares of -p_rest
  problem.divergence = Divergence::reverse_kl;
  const LossAnswer reverse = compute(problem, setup());
  EXPECT_NEAR(reverse.sums.kl, -std::log(0.9), 1e-5);
}

TEST_P(LossOnIsa, every_divergence_is_finite_where_the_teacher_has_no_rest) {
  for (const Divergence divergence : every_divergence) {
    for (const double temperature : {0.5, 1.0, 4.0}) {
      for (const double far : {3.0, 30.0}) {
        LossProblem problem = one_row({-far, far, 1, 2}, 0, least_log_probability);
        problem.divergence = divergence;
        problem.temperature = temperature;
        const LossAnswer got = compute(problem, setup());
        EXPECT_TRUE(std::isfinite(got.sums.kl));
        EXPECT_GT(got.sums.kl, 0.1);
        for (const double gradient : got.dhead) EXPECT_TRUE(std::isfinite(gradient));
        // Towards the token that the teacher is sure of, unless the student's probability for it vanishes.
        if (far < 30 || divergence == Divergence::forward_kl) {
          EXPECT_LT(got.dhead[0], 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace maestro::cpu
