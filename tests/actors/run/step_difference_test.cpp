// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/step_difference.hpp"

#include <gmock/gmock.h>

#include "runtime/record/run_log.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using ::testing::HasSubstr;

std::string line(const std::string& digest, const std::string& student) {
  return R"({"step":7,"time":"now","samples":8,"tokens":256,"samples_digest":")" + digest +
         R"(","makespan_ms":1.5,"sections":{"plain":{"loss":2.5},"student":)" + student + "}}";
}

std::string difference(const std::string& recorded, const std::string& again) {
  return step_difference(recorded, again).value_or_throw().value_or("none");
}

TEST(StepDifference, is_the_first_figure_that_differs_by_a_bit) {
  const std::string recorded = line("ab", R"({"grad_norm":0.1,"loss":0.3,"step_ms":5.0})");
  EXPECT_EQ(difference(recorded, line("ab", R"({"grad_norm":0.1,"loss":0.3,"step_ms":9.0})")), "none")
      << "times are not compared";
  EXPECT_EQ(difference(recorded, line("ab", R"({"grad_norm":0.1,"loss":0.30000000000000004})")),
            "step 7, section 'student': loss was 0.3, is 0.30000000000000004");
  EXPECT_EQ(difference(recorded, line("ac", R"({"grad_norm":0.1,"loss":0.3})")),
            R"(step 7: samples_digest was "ab", is "ac")");
  EXPECT_EQ(difference(recorded, line("ac", R"({"grad_norm":0.2,"loss":0.4})")),
            R"(step 7: samples_digest was "ab", is "ac")")
      << "samples before what was computed with them";
  EXPECT_EQ(difference(recorded, line("ab", R"({"grad_norm":0.1,"loss":0.3,"tokens_per_s":9,"slots_busy":0.5})")),
            "none")
      << "rates are not compared";
  EXPECT_EQ(difference(recorded, line("ab", R"({"loss":0.3})")),
            "step 7, section 'student': grad_norm was 0.1, is not there");
  EXPECT_EQ(difference(line("ab", R"({"loss":0.3})"), recorded),
            "step 7, section 'student': grad_norm was not there, is 0.1");
  EXPECT_EQ(difference(line("ab", R"({"loss":null})"), line("ab", R"({"loss":null})")), "none") << "not finite";
}

TEST(StepDifference, a_line_that_is_none_is_refused) {
  EXPECT_THAT(step_difference("{", "{}").error().message, HasSubstr("steps.jsonl"));
}

TEST(StepDifference, the_losses_of_a_line_are_those_of_its_sections) {
  EXPECT_EQ(losses_of(line("ab", R"({"grad_norm":0.1,"loss":0.3})")),
            "section 'plain' loss 2.5; section 'student' loss 0.3");
}

TEST(StepDifference, digests_are_compared_at_the_steps_that_both_have) {
  const TempFolder folder;
  RunLog log = RunLog::open(folder.path(), 0).value_or_throw();
  log.append_event(R"({"event":"checkpoint","step":5,"digests":{"student":"aa"}})").or_throw();
  log.append_event(R"({"event":"checkpoint","step":5,"digests":{"student":"bb"}})").or_throw();
  log.append_event(R"({"event":"checkpoint","step":9})").or_throw();
  log.append_event(R"({"event":"checkpoint","step":10,"digests":{"plain":"cc","student":"dd"}})").or_throw();
  const StepDigests recorded = recorded_digests(folder.path()).value_or_throw();
  EXPECT_EQ(recorded, (StepDigests{{5, {{"student", "bb"}}}, {10, {{"plain", "cc"}, {"student", "dd"}}}}));
  EXPECT_EQ(digest_difference(recorded, {{5, {{"student", "bb"}}}, {7, {{"student", "xx"}}}}), std::nullopt);
  EXPECT_EQ(digest_difference(recorded, {{10, {{"plain", "cc"}, {"student", "de"}}}}),
            "step 10: the values or the optimizer state of section 'student' differ");
}

}  // namespace
}  // namespace maestro
