// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/run_guard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<StepRow> rows(std::uint64_t step, double student, double plain) {
  return {{"plain", StepId(step), {{"loss", plain}, {"grad_norm", 1.0}}},
          {"student", StepId(step), {{"loss", student}, {"grad_norm", 1.0}}}};
}

GuardConfig small_window() {
  GuardConfig config;
  config.window = 8;
  config.patience = 3;
  return config;
}

TEST(RunGuard, judges_each_section_by_its_own_losses) {
  RunGuard guard(small_window());
  for (std::uint64_t step = 1; step <= 10; ++step) EXPECT_THAT(guard.judge(rows(step, 1.0, 5.0)), IsEmpty());
  const auto findings = guard.judge(rows(11, 5.0, 5.0));
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].section, "student");
  EXPECT_FALSE(findings[0].lasts());
  EXPECT_EQ(text_of(findings[0]), "step 11, section 'student': a spike of the loss begins: 5, usual is 1");
  EXPECT_EQ(line_of("spike", fields_of(findings[0]), {}),
            R"({"event":"spike","time":"1970-01-01T00:00:00.000Z","what":"began","section":"student","step":11,)"
            R"("began":11,"value":5.0,"usual":1.0,"highest":5.0})");
}

TEST(RunGuard, goes_on_with_the_steps_of_a_record) {
  const TempFolder folder;
  const auto file = folder.path() / "steps.jsonl";
  std::ofstream out(file);
  for (std::uint64_t step = 1; step <= 40; ++step) {
    out << line_of(FinishedStep{StepId(step), rows(step, step < 40 ? 1.0 : 4.0, 5.0), {}, "", {}}, {}) << "\n";
  }
  out.close();
  RunGuard guard(small_window());
  guard.learn_recorded(file, 1000).or_throw();
  EXPECT_THAT(guard.judge(rows(41, 4.0, 5.0)), IsEmpty()) << "the spike began at step 40";
  EXPECT_THAT(guard.judge(rows(42, 4.0, 5.0)), IsEmpty());
  const auto findings = guard.judge(rows(43, 4.0, 5.0));
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_TRUE(findings[0].lasts());
  EXPECT_EQ(findings[0].found.began, 40U);
}

TEST(RunGuard, reads_a_value_that_is_not_finite) {
  const TempFolder folder;
  const auto file = folder.path() / "steps.jsonl";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::ofstream(file) << line_of(FinishedStep{StepId(1), rows(1, nan, 5.0), {}, "", {}}, {}) << "\n";
  RunGuard guard(small_window());
  guard.learn_recorded(file, 1000).or_throw();
  EXPECT_THAT(guard.judge(rows(2, nan, 5.0)), IsEmpty()) << "reported at step 1";
  std::ofstream(file, std::ios::app) << "{\"step\":2,\"time\":\"\"}\n";
  const Status damaged = RunGuard(small_window()).learn_recorded(file, 1000);
  ASSERT_FALSE(damaged);
  EXPECT_THAT(damaged.error().message, HasSubstr("steps.jsonl: sections is missing"));
  std::ofstream(file) << "{\"step\":1e300,\"sections\":{\"student\":{}}}\n";
  const Status too_large = RunGuard(small_window()).learn_recorded(file, 1000);
  ASSERT_FALSE(too_large);
  EXPECT_THAT(too_large.error().message, HasSubstr("steps.jsonl: step: expected a whole number"));
}

TEST(RunGuard, refuses_norms_only_where_it_may_skip) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(RunGuard(small_window()).refuse({{"student", nan}}));
  GuardConfig skipping = small_window();
  skipping.action = GuardAction::skip;
  RunGuard guard(skipping);
  EXPECT_TRUE(guard.refuse({{"student", nan}}));
  EXPECT_TRUE(guard.refuse({{"student", nan}}));
  EXPECT_FALSE(guard.refuses_for_too_long());
  const auto refused = guard.refuse({{"student", nan}});
  ASSERT_TRUE(refused);
  EXPECT_TRUE(guard.refuses_for_too_long()) << "patience = 3";
  EXPECT_EQ(text_of(*refused, StepId(3)), "step 3 is skipped: the gradient norm of section 'student' is nan");
}

TEST(RunGuard, leaves_a_skipped_step_out_of_the_usual_losses) {
  RunGuard guard(small_window());
  for (std::uint64_t step = 1; step <= 10; ++step) EXPECT_THAT(guard.judge(rows(step, 1.0, 5.0)), IsEmpty());
  std::vector<StepRow> skipped = rows(11, std::numeric_limits<double>::quiet_NaN(), 5.0);
  for (StepRow& row : skipped) row.metrics[skipped_metric] = 1;
  EXPECT_THAT(guard.judge(skipped), IsEmpty());
  const auto findings = guard.judge(rows(12, 5.0, 5.0));
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].found.usual, 1.0);
}

TEST(RunGuard, decides_by_the_norms_of_a_record) {  // NG-1
  const TempFolder folder;
  const auto file = folder.path() / "steps.jsonl";
  std::ofstream out(file);
  for (std::uint64_t step = 1; step <= 40; ++step) {
    out << line_of(FinishedStep{StepId(step), rows(step, 1.0, 5.0), {}, "", {}}, {}) << "\n";
  }
  out.close();
  GuardConfig skipping = small_window();
  skipping.action = GuardAction::skip;
  RunGuard guard(skipping);
  guard.learn_recorded(file, 40).or_throw();
  EXPECT_TRUE(guard.refuse({{"student", 10.5}}));
  RunGuard early(skipping);
  early.learn_recorded(file, 5).or_throw();
  EXPECT_FALSE(early.refuse({{"student", 10.5}})) << "five steps are not enough to judge by";
}

}  // namespace
}  // namespace maestro
