// SPDX-License-Identifier: Apache-2.0
// Tolerances, relative to the largest value: f32 logits and sums with up to a few thousand terms, 2e-5; bf16 rounds
// dlogits and dhidden once each (2^-9), 1.5e-2. Loss sums are computed in f64 from f32 logits, 1e-5 in either
// precision.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/ops/loss_cases.hpp"
#include "tests/ops/recorded_cases.hpp"

namespace maestro::cpu {
namespace {

using testing::Recorded;
using testing::Values;
using testing::worst_error;

Divergence divergence_named(const std::string& name) {
  if (name == "forward_kl") return Divergence::forward_kl;
  return name == "js" ? Divergence::js : Divergence::reverse_kl;
}

LossProblem recorded_problem(const Recorded& recorded, const nlohmann::json& note) {
  LossProblem p;
  p.rows = 11;
  p.width = 12;
  p.teacher_width = 10;
  p.vocabulary = 75;
  p.teacher_vocabulary = 70;
  p.shared = note["boundary"] == "none" ? 75 : 67;
  p.k = 6;
  p.hidden = recorded.at("hidden");
  p.head = recorded.at("head");
  p.teacher_hidden = recorded.at("teacher_hidden");
  p.teacher_head = recorded.at("teacher_head");
  p.targets = recorded.at("targets");
  p.teacher_logits = recorded.at("teacher_logits");
  p.teacher_values = recorded.at("teacher_values");
  p.teacher_indices = recorded.at("teacher_indices");
  p.with_teacher = note["boundary"] != "none";
  p.boundary = note["boundary"] == "top_k" ? TeacherOutput::top_k : TeacherOutput::hidden;
  p.divergence = divergence_named(note["divergence"]);
  p.temperature = note.value("temperature", 1.0);
  p.alpha = note.value("alpha", 0.0);
  p.beta = note.value("beta", 0.5);
  p.scale = note["scale"];
  return p;
}

TEST_P(LossOnIsa, agrees_with_pytorch) {
  const Recorded recorded = testing::read_recorded("losses.safetensors");
  for (const auto& note : recorded.cases) {
    for (const LossLimits& limits : {LossLimits{}, computing_again}) {
      SCOPED_TRACE(note.dump());
      const auto name = note["name"].get<std::string>();
      LossProblem problem = recorded_problem(recorded, note);
      LossRun run = setup();
      run.limits = limits;
      const Values& sums = recorded.at(name + ".sums");
      const LossSums wanted{sums[0], sums[1], sums[2], sums[3], 8};
      const auto check = [&] {
        const LossAnswer got = compute(problem, run);
        expect_near_sums(got.sums, wanted, 1e-5);
        EXPECT_EQ(got.sums.tokens, wanted.tokens);
        EXPECT_LT(worst_error(got.dhidden, recorded.at(name + ".dhidden")), gradient_tolerance());
        EXPECT_LT(worst_error(got.dhead, recorded.at(name + ".dhead")), gradient_tolerance());
      };
      check();
      if (problem.boundary != TeacherOutput::hidden || !problem.with_teacher) continue;
      problem.boundary = TeacherOutput::logits;
      check();
    }
  }
}

TEST_P(LossOnIsa, kept_and_recomputed_logits_give_the_same_losses_over_several_panels) {  // DL-4
  LossProblem capped = wide_problem();
  capped.softcap = capped.teacher_softcap = 4;
  std::vector<LossProblem> problems = with_every_divergence(wide_problem());
  for (const LossProblem& problem : with_every_divergence(capped)) problems.push_back(problem);
  for (const LossProblem& problem : problems) {
    SCOPED_TRACE(describe(problem));
    LossRun run = setup();
    const LossAnswer kept = compute(problem, run);
    run.limits = computing_again;
    const LossAnswer again = compute(problem, run);
    expect_near_sums(again.sums, kept.sums, 1e-6);
    EXPECT_LT(worst_error(again.dhidden, kept.dhidden), run.act == DType::f32 ? 1e-5 : 1e-2);
    EXPECT_LT(worst_error(again.dhead, kept.dhead), 1e-5);
  }
}

TEST_P(LossOnIsa, two_runs_are_bitwise_equal) {  // DL-4
  for (const LossProblem& problem : with_every_divergence(wide_problem())) {
    for (const LossLimits& limits : {LossLimits{}, computing_again}) {
      LossRun run = setup();
      run.limits = limits;
      const LossAnswer first = compute(problem, run);
      const LossAnswer second = compute(problem, run);
      EXPECT_EQ(first.sums.total, second.sums.total);
      EXPECT_EQ(first.dhidden, second.dhidden);
      EXPECT_EQ(first.dhead, second.dhead);
    }
  }
}

TEST_P(LossOnIsa, bf16_teacher_logits_are_read_as_their_values) {
  LossProblem problem = small_problem();
  problem.boundary = TeacherOutput::logits;
  for (double& value : problem.teacher_logits) value = static_cast<float>(bfloat16(static_cast<float>(value)));
  const LossAnswer wide = compute(problem, setup());
  problem.logits_dtype = DType::bf16;
  const LossAnswer narrow = compute(problem, setup());
  EXPECT_EQ(wide.sums.total, narrow.sums.total);
  EXPECT_EQ(wide.dhidden, narrow.dhidden);
}

TEST_P(LossOnIsa, rows_without_a_target_change_nothing_and_get_no_gradient) {  // DL-2
  for (LossProblem problem : with_every_divergence(small_problem())) {
    SCOPED_TRACE(describe(problem));
    const LossAnswer before = compute(problem, setup());
    const auto poison = [&](Values& values, std::int64_t columns) {
      std::fill_n(values.begin() + 2 * columns, columns, 3.0);
    };
    poison(problem.hidden, problem.width);
    poison(problem.teacher_hidden, problem.teacher_width);
    poison(problem.teacher_logits, problem.teacher_vocabulary);
    poison(problem.teacher_values, problem.k);
    if (problem.divergence == Divergence::policy_gradient) poison(problem.sampled, 1);
    if (problem.divergence == Divergence::policy_gradient) poison(problem.teacher_sampled, 1);
    const LossAnswer after = compute(problem, setup());
    EXPECT_EQ(before.sums.total, after.sums.total);
    EXPECT_EQ(before.sums.kl, after.sums.kl);
    EXPECT_EQ(before.dhead, after.dhead);
    for (std::size_t c = 0; c < 6; ++c) EXPECT_EQ(after.dhidden[2 * 6 + c], 0);
    EXPECT_EQ(after.sums.tokens, 7);
  }
}

TEST_P(LossOnIsa, a_call_without_any_target_is_zero) {
  LossProblem problem = small_problem();
  problem.targets.assign(9, -1);
  LossRun run = setup();
  run.dhead_before = 2;
  const LossAnswer got = compute(problem, run);
  EXPECT_EQ(got.sums.tokens, 0);
  EXPECT_EQ(got.sums.total, 0);
  EXPECT_EQ(got.dhidden, Values(got.dhidden.size(), 0));
  EXPECT_EQ(got.dhead, Values(got.dhead.size(), 2));
}

TEST_P(LossOnIsa, a_rest_whose_logits_are_far_above_the_others_stays_finite) {
  LossProblem problem = small_problem();
  problem.temperature = 0.5;
  std::fill(problem.hidden.begin(), problem.hidden.end(), 1.0);
  std::fill(problem.head.begin() + problem.shared * problem.width, problem.head.end(), 500.0);
  const LossAnswer got = compute(problem, setup());
  EXPECT_NEAR(got.sums.ce / 7, 3000, 20);  // six columns of 6 x 500 against a target near 0
  EXPECT_TRUE(std::isfinite(got.sums.kl));
  for (const double value : got.dhidden) ASSERT_TRUE(std::isfinite(value));
}

TEST_P(LossOnIsa, head_gradients_accumulate_and_either_gradient_may_be_left_out) {
  const LossProblem problem = small_problem();
  LossRun run = setup();
  const LossAnswer both = compute(problem, run);
  run.dhead_before = 0.5;
  const LossAnswer added = compute(problem, run);
  for (std::size_t i = 0; i < added.dhead.size(); ++i) ASSERT_NEAR(added.dhead[i], both.dhead[i] + 0.5, 1e-6);
  run.dhead = false;
  EXPECT_EQ(compute(problem, run).dhidden, both.dhidden);
  run = setup();
  run.dhidden = false;
  EXPECT_EQ(compute(problem, run).dhead, both.dhead);
  run.dhead = false;
  const LossAnswer none = compute(problem, run);
  EXPECT_EQ(none.sums.total, both.sums.total);
  EXPECT_EQ(none.dhead, Values(none.dhead.size(), 0));
}

TEST_P(LossOnIsa, extreme_temperatures_and_logits_stay_finite) {
  for (LossProblem problem : with_every_divergence(small_problem())) {
    for (double& value : problem.hidden) value *= 64;
    for (const double temperature : {1e-3, 0.05, 50.0, 1e4}) {
      problem.temperature = temperature;
      SCOPED_TRACE(describe(problem));
      const LossAnswer got = compute(problem, setup());
      EXPECT_TRUE(std::isfinite(got.sums.total));
      EXPECT_TRUE(got.sums.kl >= 0 || problem.divergence == Divergence::policy_gradient);
      for (const double value : got.dhidden) ASSERT_TRUE(std::isfinite(value));
      if (problem.divergence == Divergence::js) {
        EXPECT_LE(got.sums.kl, 7 * std::log(2.0) + 1e-4);  // its upper bound at beta = 1/2
      }
    }
  }
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<Isa, DType>>& test) {
  return std::string(name_of(std::get<0>(test.param))) + "_" + std::string(name_of(std::get<1>(test.param)));
}
INSTANTIATE_TEST_SUITE_P(Loss, LossOnIsa,
                         ::testing::Combine(::testing::ValuesIn(supported_isas()),
                                            ::testing::Values(DType::f32, DType::bf16)),
                         name_of_case);

TEST(Loss, gradients_agree_with_central_differences) {
  LossProblem capped = small_problem();
  capped.softcap = 2;
  capped.teacher_softcap = 3;
  std::vector<LossProblem> problems = with_every_divergence(small_problem());
  for (const LossProblem& problem : with_every_divergence(capped)) problems.push_back(problem);
  for (LossProblem& problem : problems) {
    if (problem.divergence == Divergence::policy_gradient) continue;  // has constants that depend on the logits
    problem.temperature = 1.5;
    problem.beta = 0.3;
    SCOPED_TRACE(describe(problem));
    LossRun run;
    run.isa = best_isa();
    const LossAnswer analytic = compute(problem, run);
    run.dhidden = run.dhead = false;
    // Step 2^-7: truncation about h^2 = 6e-5 times third derivatives, rounding of f32 logits 1e-6 / h = 1e-4.
    const auto differences = [&](Values& of) {
      Values numeric;
      for (double& value : of) {
        const double kept = value;
        value = kept + 0x1p-7;
        const double above = compute(problem, run).sums.total;
        value = kept - 0x1p-7;
        numeric.push_back((above - compute(problem, run).sums.total) / 0x1p-6 * problem.scale);
        value = kept;
      }
      return numeric;
    };
    EXPECT_LT(worst_error(analytic.dhidden, differences(problem.hidden)), 2e-3);
    EXPECT_LT(worst_error(analytic.dhead, differences(problem.head)), 2e-3);
  }
}

TEST(Loss, native_bf16_products_give_the_losses_of_converted_ones) {
  if (!native_bf16_supported()) GTEST_SKIP() << "this CPU has no bf16 dot products";
  for (LossProblem problem : with_every_divergence(wide_problem())) {
    SCOPED_TRACE(describe(problem));
    LossRun run;
    run.isa = best_isa();
    run.act = DType::bf16;
    const LossAnswer converted = compute(problem, run);
    run.bf16 = Bf16Products::native;
    const LossAnswer native = compute(problem, run);
    expect_near_sums(native.sums, converted.sums, 1e-5);
    EXPECT_LT(worst_error(native.dhidden, converted.dhidden), 1e-2);
    EXPECT_LT(worst_error(native.dhead, converted.dhead), 1e-2);
  }
}

TEST(Loss, many_rows_are_worked_off_in_blocks) {
  LossProblem sizes;
  sizes.rows = 1300;  // more than two blocks of LossLimits::rows
  sizes.width = 4;
  sizes.teacher_width = 4;
  sizes.vocabulary = sizes.teacher_vocabulary = sizes.shared = 20;
  sizes.k = 1;
  const LossProblem problem = random_loss_problem(sizes, 9);
  LossRun run;
  run.isa = best_isa();
  const LossAnswer large = compute(problem, run);
  run.limits = computing_again;
  const LossAnswer small = compute(problem, run);
  EXPECT_EQ(large.sums.tokens, 1040);
  expect_near_sums(small.sums, large.sums, 1e-6);
  EXPECT_LT(worst_error(small.dhidden, large.dhidden), 1e-5);
  EXPECT_LT(worst_error(small.dhead, large.dhead), 1e-5);
}

}  // namespace
}  // namespace maestro::cpu
