// SPDX-License-Identifier: Apache-2.0
// Problems for tests of losses, and the fixture that runs them with every instruction set and precision.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "tests/ops/loss_problem.hpp"

namespace maestro::cpu {

/// Limits that keep no logits, with blocks of a few rows.
inline constexpr LossLimits computing_again{.logits_bytes = 0, .rows = 7};

inline void expect_near_sums(const LossSums& got, const LossSums& wanted, double tolerance) {
  const auto near = [tolerance](double a, double b) {
    return std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b));
  };
  EXPECT_TRUE(near(got.ce, wanted.ce)) << got.ce << " ce, wanted " << wanted.ce;
  EXPECT_TRUE(near(got.kl, wanted.kl)) << got.kl << " kl, wanted " << wanted.kl;
  EXPECT_TRUE(near(got.total, wanted.total)) << got.total << " total, wanted " << wanted.total;
  EXPECT_TRUE(near(got.teacher_ce, wanted.teacher_ce)) << got.teacher_ce << " teacher_ce, wanted " << wanted.teacher_ce;
  EXPECT_TRUE(near(got.policy, wanted.policy)) << got.policy << " policy, wanted " << wanted.policy;
  EXPECT_TRUE(near(got.ratio, wanted.ratio)) << got.ratio << " ratio, wanted " << wanted.ratio;
  EXPECT_EQ(got.capped, wanted.capped);
}

/// Returns the problem with every divergence and each teacher output for which that divergence is finite.
inline std::vector<LossProblem> with_every_divergence(const LossProblem& problem) {
  std::vector<LossProblem> problems;
  for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::logits, TeacherOutput::top_k}) {
    for (const Divergence divergence : {Divergence::forward_kl, Divergence::reverse_kl, Divergence::js}) {
      if (boundary == TeacherOutput::top_k && divergence == Divergence::reverse_kl) continue;
      problems.push_back(problem);
      problems.back().boundary = boundary;
      problems.back().divergence = divergence;
    }
  }
  for (const Divergence divergence : {Divergence::forward_kl, Divergence::reverse_kl, Divergence::js}) {
    problems.push_back(with_rest(problem));
    problems.back().divergence = divergence;
  }
  for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::logits, TeacherOutput::sampled}) {
    problems.push_back(with_policy(problem, boundary));
  }
  return problems;
}
inline std::string describe(const LossProblem& p) {
  return "boundary " + std::to_string(static_cast<int>(p.boundary)) + " divergence " +
         std::to_string(static_cast<int>(p.divergence)) + " T " + std::to_string(p.temperature);
}

inline LossProblem small_problem(unsigned seed = 5) {
  LossProblem sizes;
  sizes.rows = 9;
  sizes.width = 6;
  sizes.teacher_width = 5;
  sizes.vocabulary = 37;
  sizes.teacher_vocabulary = 33;
  sizes.shared = 31;
  sizes.k = 4;
  sizes.scale = 0.25;
  return random_loss_problem(sizes, seed);
}

/// Returns a problem with vocabularies of three panels each, whose edges differ.
inline LossProblem wide_problem() {
  LossProblem sizes;
  sizes.rows = 12;
  sizes.width = 8;
  sizes.teacher_width = 8;
  sizes.vocabulary = 8200;
  sizes.teacher_vocabulary = 9001;
  sizes.shared = 8190;
  sizes.k = 40;
  sizes.temperature = 1.5;
  return random_loss_problem(sizes, 6);
}

class LossOnIsa : public ::testing::TestWithParam<std::tuple<Isa, DType>> {
 protected:
  [[nodiscard]] LossRun setup() const {
    LossRun run;
    run.isa = std::get<0>(GetParam());
    run.act = std::get<1>(GetParam());
    return run;
  }
  [[nodiscard]] double gradient_tolerance() const { return std::get<1>(GetParam()) == DType::f32 ? 2e-5 : 1.5e-2; }
};

}  // namespace maestro::cpu
