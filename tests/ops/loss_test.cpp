// SPDX-License-Identifier: Apache-2.0
// Tolerances, relative to the largest value: f32 logits and sums of up to a few thousand terms, 2e-5; bf16 rounds
// dlogits and dhidden once each (2^-9), 1.5e-2. Sums of losses are taken in f64 over f32 logits, 1e-5 in either
// precision.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/core/result.hpp"
#include "runtime/ops/distillation_settings.hpp"
#include "tests/ops/loss_problem.hpp"
#include "tests/ops/recorded_cases.hpp"

namespace maestro::cpu {
namespace {

using testing::Recorded;
using testing::Values;
using testing::worst_error;

/// Limits that keep no logits, in blocks of a few rows.
constexpr LossLimits computing_again{.logits_bytes = 0, .rows = 7};

Divergence divergence_named(const std::string& name) {
  if (name == "forward_kl") return Divergence::forward_kl;
  return name == "js" ? Divergence::js : Divergence::reverse_kl;
}

void expect_near_sums(const LossSums& got, const LossSums& wanted, double tolerance) {
  const auto near = [tolerance](double a, double b) {
    return std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b));
  };
  EXPECT_TRUE(near(got.ce, wanted.ce)) << got.ce << " ce, wanted " << wanted.ce;
  EXPECT_TRUE(near(got.kl, wanted.kl)) << got.kl << " kl, wanted " << wanted.kl;
  EXPECT_TRUE(near(got.total, wanted.total)) << got.total << " total, wanted " << wanted.total;
  EXPECT_TRUE(near(got.teacher_ce, wanted.teacher_ce)) << got.teacher_ce << " teacher_ce, wanted " << wanted.teacher_ce;
}

/// Every divergence with every boundary on which it is finite.
std::vector<std::pair<TeacherOutput, Divergence>> combinations() {
  return {{TeacherOutput::hidden, Divergence::forward_kl}, {TeacherOutput::hidden, Divergence::reverse_kl},
          {TeacherOutput::hidden, Divergence::js},         {TeacherOutput::logits, Divergence::forward_kl},
          {TeacherOutput::logits, Divergence::reverse_kl}, {TeacherOutput::logits, Divergence::js},
          {TeacherOutput::top_k, Divergence::forward_kl},  {TeacherOutput::top_k, Divergence::js}};
}
std::string describe(const LossProblem& p) {
  return "boundary " + std::to_string(static_cast<int>(p.boundary)) + " divergence " +
         std::to_string(static_cast<int>(p.divergence)) + " T " + std::to_string(p.temperature);
}

LossProblem small_problem(unsigned seed = 5) {
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

/// Vocabularies of three panels each, whose edges differ.
LossProblem wide_problem() {
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
  for (const auto& [boundary, divergence] : combinations()) {
    LossProblem problem = wide_problem();
    problem.boundary = boundary;
    problem.divergence = divergence;
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
  for (const auto& [boundary, divergence] : combinations()) {
    for (const LossLimits& limits : {LossLimits{}, computing_again}) {
      LossProblem problem = wide_problem();
      problem.boundary = boundary;
      problem.divergence = divergence;
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
  for (const auto& [boundary, divergence] : combinations()) {
    LossProblem problem = small_problem();
    problem.boundary = boundary;
    problem.divergence = divergence;
    SCOPED_TRACE(describe(problem));
    const LossAnswer before = compute(problem, setup());
    const auto poison = [&](Values& values, std::int64_t columns) {
      std::fill_n(values.begin() + 2 * columns, columns, 3.0);
    };
    poison(problem.hidden, problem.width);
    poison(problem.teacher_hidden, problem.teacher_width);
    poison(problem.teacher_logits, problem.teacher_vocabulary);
    poison(problem.teacher_values, problem.k);
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

TEST_P(LossOnIsa, columns_beyond_the_shared_vocabulary_are_in_the_cross_entropy_alone) {  // DL-3
  for (const auto& [boundary, divergence] : combinations()) {
    LossProblem problem = small_problem();
    problem.boundary = boundary;
    problem.divergence = divergence;
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

TEST_P(LossOnIsa, extreme_temperatures_and_logits_stay_finite) {
  for (const auto& [boundary, divergence] : combinations()) {
    for (const double temperature : {1e-3, 0.05, 50.0, 1e4}) {
      LossProblem problem = small_problem();
      problem.boundary = boundary;
      problem.divergence = divergence;
      problem.temperature = temperature;
      for (double& value : problem.hidden) value *= 64;
      SCOPED_TRACE(describe(problem));
      const LossAnswer got = compute(problem, setup());
      EXPECT_TRUE(std::isfinite(got.sums.total));
      EXPECT_GE(got.sums.kl, 0);
      for (const double value : got.dhidden) ASSERT_TRUE(std::isfinite(value));
      if (divergence == Divergence::js) {
        EXPECT_LE(got.sums.kl, 7 * std::log(2.0) + 1e-4);  // its upper bound at beta = 1/2
      }
    }
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

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<Isa, DType>>& test) {
  return std::string(name_of(std::get<0>(test.param))) + "_" + std::string(name_of(std::get<1>(test.param)));
}
INSTANTIATE_TEST_SUITE_P(Loss, LossOnIsa,
                         ::testing::Combine(::testing::ValuesIn(supported_isas()),
                                            ::testing::Values(DType::f32, DType::bf16)),
                         name_of_case);

TEST(Loss, gradients_agree_with_central_differences) {
  for (const auto& [boundary, divergence] : combinations()) {
    LossProblem problem = small_problem();
    problem.boundary = boundary;
    problem.divergence = divergence;
    problem.temperature = 1.5;
    problem.beta = 0.3;
    SCOPED_TRACE(describe(problem));
    LossRun run;
    run.isa = best_isa();
    const LossAnswer analytic = compute(problem, run);
    run.dhidden = run.dhead = false;
    // Step 2^-7: truncation about h^2 = 6e-5 of third derivatives, rounding of f32 logits 1e-6 / h = 1e-4.
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
  for (const auto& [boundary, divergence] : combinations()) {
    LossProblem problem = wide_problem();
    problem.boundary = boundary;
    problem.divergence = divergence;
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

DistillationSettings valid_settings() {
  DistillationSettings settings;
  settings.student_vocabulary = 50304;
  settings.teacher_vocabulary = 50257;
  settings.shared_vocabulary = 50257;
  settings.top_k = 64;
  return settings;
}

/// Returns the message of the JobError, or "accepted".
std::string verdict(const DistillationSettings& settings) {
  try {
    validate(settings);
  } catch (const JobError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(DistillationSettings, sound_ones_are_accepted) {
  DistillationSettings settings = valid_settings();
  EXPECT_EQ(verdict(settings), "accepted");
  settings.boundary = TeacherOutput::top_k;
  settings.divergence = Divergence::js;
  EXPECT_EQ(verdict(settings), "accepted");
  settings.divergence = Divergence::forward_kl;
  settings.beta = 7;  // of js only
  EXPECT_EQ(verdict(settings), "accepted");
}

TEST(DistillationSettings, each_unsound_one_is_named_with_a_way_out) {
  const auto with = [](auto change) {
    DistillationSettings settings = valid_settings();
    change(settings);
    return verdict(settings);
  };
  using S = DistillationSettings;
  EXPECT_NE(with([](S& s) { s.temperature = 0; }).find("temperature = 0 must be greater than 0"), std::string::npos);
  EXPECT_NE(with([](S& s) { s.temperature = NAN; }).find("temperature = nan"), std::string::npos);
  EXPECT_NE(with([](S& s) { s.alpha = 1.5; }).find("alpha = 1.5 must lie in [0, 1]"), std::string::npos);
  EXPECT_NE(with([](S& s) { s.divergence = Divergence::js, s.beta = 0; }).find("divergence = \"forward_kl\""),
            std::string::npos);
  EXPECT_NE(with([](S& s) { s.divergence = Divergence::js, s.beta = 1; }).find("divergence = \"reverse_kl\""),
            std::string::npos);
  EXPECT_NE(with([](S& s) {
              s.divergence = Divergence::reverse_kl, s.boundary = TeacherOutput::top_k;
            }).find("infinite with boundary = \"top_k\""),
            std::string::npos);
  EXPECT_NE(with([](S& s) { s.shared_vocabulary = 50300; }).find("use 1 to 50257"), std::string::npos);
  EXPECT_NE(with([](S& s) { s.boundary = TeacherOutput::top_k, s.top_k = 0; }).find("top_k = 0 must lie between 1"),
            std::string::npos);
}

}  // namespace
}  // namespace maestro::cpu
