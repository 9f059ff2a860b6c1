// SPDX-License-Identifier: Apache-2.0
// Losses of a student with special teachers, vocabularies and weights of the divergence.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/ops/loss_cases.hpp"

namespace maestro::cpu {
namespace {

using testing::Values;
using testing::worst_error;

TEST_P(LossOnIsa, columns_beyond_the_shared_vocabulary_are_in_the_cross_entropy_alone) {  // DL-3
  for (LossProblem problem : with_every_divergence(small_problem())) {
    SCOPED_TRACE(describe(problem));
    const LossAnswer before = compute(problem, setup());
    std::fill(problem.teacher_head.begin() + problem.shared * problem.teacher_width, problem.teacher_head.end(), 4.0);
    for (std::int64_t i = 0; i < problem.rows * problem.teacher_vocabulary; ++i) {
      if (i % problem.teacher_vocabulary >= problem.shared) problem.teacher_logits[static_cast<std::size_t>(i)] = 50;
    }
    const LossAnswer other_teacher = compute(problem, setup());
    EXPECT_EQ(before.sums.total, other_teacher.sums.total);
    EXPECT_EQ(before.dhidden, other_teacher.dhidden);
    EXPECT_EQ(before.dhead, other_teacher.dhead);
    for (double& value : problem.head) value *= 8;  // so that the rest has most of the softmax in some rows
    std::fill(problem.head.begin() + problem.shared * problem.width, problem.head.end(), 4.0);
    problem.alpha = 0;
    const LossAnswer distilled = compute(problem, setup());
    LossProblem plain = problem;
    plain.with_teacher = false;
    const LossAnswer whole = compute(plain, setup());
    EXPECT_NEAR(distilled.sums.ce, whole.sums.ce, 1e-5 * whole.sums.ce);
    EXPECT_LT(worst_error(distilled.dhidden, whole.dhidden), gradient_tolerance());
    EXPECT_LT(worst_error(distilled.dhead, whole.dhead), gradient_tolerance());
    problem.alpha = 1;
    const LossAnswer alone = compute(problem, setup());
    std::fill(problem.head.begin() + problem.shared * problem.width, problem.head.end(), -4.0);
    const LossAnswer other_rest = compute(problem, setup());
    EXPECT_EQ(alone.sums.kl, other_rest.sums.kl);
    EXPECT_EQ(alone.dhidden, other_rest.dhidden);
    for (std::size_t i = 31 * 6; i < alone.dhead.size(); ++i) ASSERT_EQ(alone.dhead[i], 0);
  }
}

TEST_P(LossOnIsa, a_teacher_like_the_student_diverges_by_nothing) {
  for (const Divergence divergence : {Divergence::forward_kl, Divergence::reverse_kl, Divergence::js}) {
    LossProblem problem = small_problem();
    problem.divergence = divergence;
    problem.boundary = TeacherOutput::hidden;
    problem.alpha = 1;
    problem.temperature = 2;
    problem.shared = problem.vocabulary;
    problem.teacher_width = problem.width;
    problem.teacher_hidden = problem.hidden;
    problem.teacher_vocabulary = problem.vocabulary;
    problem.teacher_head = problem.head;
    problem.teacher_logits.resize(static_cast<std::size_t>(problem.rows * problem.vocabulary));
    const LossAnswer got = compute(problem, setup());
    EXPECT_LT(got.sums.kl, 1e-5);
    EXPECT_EQ(got.sums.ce, got.sums.teacher_ce);
    EXPECT_LT(worst_error(got.dhidden, Values(got.dhidden.size(), 0), 1), 1e-5);
  }
}

TEST_P(LossOnIsa, naming_every_token_in_top_k_is_the_dense_divergence) {
  for (const Divergence divergence : {Divergence::forward_kl, Divergence::js}) {
    LossProblem problem = small_problem();
    problem.divergence = divergence;
    problem.temperature = 1.7;
    problem.beta = 0.3;
    problem.boundary = TeacherOutput::logits;
    const LossAnswer dense = compute(problem, setup());
    problem.boundary = TeacherOutput::top_k;
    problem.k = problem.shared;
    problem.teacher_values.clear();
    problem.teacher_indices.clear();
    for (std::int64_t r = 0; r < problem.rows; ++r) {
      for (std::int64_t v = problem.shared; v-- > 0;) {
        problem.teacher_indices.push_back(static_cast<double>(v));
        problem.teacher_values.push_back(problem.teacher_logits[static_cast<std::size_t>(r * 33 + v)]);
      }
    }
    const LossAnswer sparse = compute(problem, setup());
    EXPECT_NEAR(sparse.sums.kl, dense.sums.kl, 1e-5 * dense.sums.kl);
    EXPECT_LT(worst_error(sparse.dhidden, dense.dhidden), gradient_tolerance());
    EXPECT_LT(worst_error(sparse.dhead, dense.dhead), gradient_tolerance());
  }
}

TEST_P(LossOnIsa, tokens_of_a_top_k_teacher_outside_the_shared_vocabulary_are_left_out) {
  LossProblem problem = small_problem();
  problem.boundary = TeacherOutput::top_k;
  const LossAnswer before = compute(problem, setup());
  LossProblem wider = problem;
  wider.k = 6;
  wider.teacher_indices.clear();
  wider.teacher_values.clear();
  for (std::size_t r = 0; r < 9; ++r) {
    for (const double index : {32.0, -1.0}) wider.teacher_indices.push_back(index);
    for (std::size_t i = 0; i < 2; ++i) wider.teacher_values.push_back(30);
    for (std::size_t i = 0; i < 4; ++i) {
      wider.teacher_indices.push_back(problem.teacher_indices[r * 4 + i]);
      wider.teacher_values.push_back(problem.teacher_values[r * 4 + i]);
    }
  }
  const LossAnswer after = compute(wider, setup());
  EXPECT_EQ(before.sums.total, after.sums.total);
  EXPECT_EQ(before.dhidden, after.dhidden);
  wider.teacher_indices.assign(wider.teacher_indices.size(), 32);
  const LossAnswer empty = compute(wider, setup());
  EXPECT_TRUE(std::isnan(empty.sums.kl));  // not a divergence of 0
  EXPECT_TRUE(std::isnan(empty.dhidden[0]));
  EXPECT_EQ(empty.sums.ce, before.sums.ce);
}

TEST_P(LossOnIsa, a_soft_cap_bends_the_logits_of_the_cross_entropy) {
  LossProblem problem = small_problem();
  problem.with_teacher = false;
  problem.softcap = 2;
  double wanted = 0;
  for (std::int64_t r = 0; r < problem.rows; ++r) {
    if (problem.targets[static_cast<std::size_t>(r)] < 0) continue;
    const auto logit = [&](std::int64_t v) {
      const double* hidden = &problem.hidden[static_cast<std::size_t>(r * problem.width)];
      const double* token = &problem.head[static_cast<std::size_t>(v * problem.width)];
      return 2 * std::tanh(std::inner_product(hidden, hidden + problem.width, token, 0.0) / 2);
    };
    double sum = 0;
    for (std::int64_t v = 0; v < problem.vocabulary; ++v) sum += std::exp(logit(v));
    wanted += std::log(sum) - logit(static_cast<std::int64_t>(problem.targets[static_cast<std::size_t>(r)]));
  }
  EXPECT_NEAR(compute(problem, setup()).sums.ce, wanted, 1e-5 * wanted);
}

TEST_P(LossOnIsa, a_teacher_head_with_a_soft_cap_gives_the_capped_logits) {
  for (LossProblem problem : with_every_divergence(small_problem())) {
    if (problem.boundary != TeacherOutput::hidden) continue;
    SCOPED_TRACE(describe(problem));
    problem.teacher_softcap = 2;
    problem.derive_boundaries();
    LossProblem received = problem;
    received.boundary = TeacherOutput::logits;
    const LossAnswer got = compute(problem, setup());
    const LossAnswer wanted = compute(received, setup());
    expect_near_sums(got.sums, wanted.sums, 1e-5);
    EXPECT_LT(worst_error(got.dhidden, wanted.dhidden), gradient_tolerance());
  }
}

TEST_P(LossOnIsa, the_ends_of_js_are_zero) {
  for (const double beta : {0.0, 1.0}) {
    for (const TeacherOutput boundary : {TeacherOutput::hidden, TeacherOutput::top_k}) {
      LossProblem problem = small_problem();
      problem.boundary = boundary;
      problem.divergence = Divergence::js;
      problem.beta = beta;
      problem.alpha = 1;
      const LossAnswer got = compute(problem, setup());
      EXPECT_EQ(got.sums.kl, 0);
      EXPECT_EQ(got.dhidden, Values(got.dhidden.size(), 0));
    }
  }
}

TEST_P(LossOnIsa, alpha_zero_is_cross_entropy_alone) {
  LossProblem problem = small_problem();
  problem.alpha = 0;
  problem.temperature = 3;
  const LossAnswer distilled = compute(problem, setup());
  EXPECT_GT(distilled.sums.kl, 0.1);  // still reported
  problem.with_teacher = false;
  const LossAnswer plain = compute(problem, setup());
  EXPECT_NEAR(distilled.sums.total, plain.sums.total, 1e-5 * plain.sums.total);
  EXPECT_LT(worst_error(distilled.dhidden, plain.dhidden), gradient_tolerance());
}

}  // namespace
}  // namespace maestro::cpu
