// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/run_schedule.hpp"

#include <gtest/gtest.h>

#include <string>

namespace maestro {
namespace {

/// Returns the next units as text: "t1 v1 c1 s1" is train, validate, checkpoint, shadow.
std::string units(RunSchedule& schedule, int limit = 100) {
  std::string text;
  for (int at = 0; at < limit; ++at) {
    const auto unit = schedule.next();
    if (!unit) break;
    const char kind = "tvcs"[static_cast<int>(unit->kind)];
    text += (text.empty() ? "" : " ") + std::string(1, kind) + std::to_string(unit->step.value());
  }
  return text;
}

RunScheduleOptions options_of(std::uint64_t steps, std::uint64_t validate_every, std::uint64_t checkpoint_every) {
  RunScheduleOptions options;
  options.steps = steps;
  options.validate_every = validate_every;
  options.checkpoint_every = checkpoint_every;
  return options;
}

TEST(RunSchedule, validation_and_checkpoint_follow_their_step_in_this_order) {  // RS-1
  RunSchedule schedule(options_of(4, 2, 3));
  EXPECT_EQ(units(schedule), "t1 t2 v2 t3 c3 t4 v4 c4");
}

TEST(RunSchedule, the_last_step_is_validated_and_kept_once_even_when_it_is_due_anyway) {  // RS-1
  RunSchedule every(options_of(2, 1, 1));
  EXPECT_EQ(units(every), "t1 v1 c1 t2 v2 c2");
  RunScheduleOptions bare = options_of(2, 0, 0);
  bare.validate_at_end = false;
  bare.checkpoint_at_end = false;
  RunSchedule none(bare);
  EXPECT_EQ(units(none), "t1 t2");
}

TEST(RunSchedule, a_shadow_follows_a_step_that_has_no_checkpoint) {  // RS-1
  RunScheduleOptions options = options_of(7, 0, 4);
  options.shadow_every = 2;
  RunSchedule schedule(options);
  EXPECT_EQ(units(schedule), "t1 t2 s2 t3 t4 c4 t5 t6 s6 t7 v7 c7");
  RunSchedule stopped(options);
  EXPECT_EQ(units(stopped, 2), "t1 t2");
  stopped.stop();
  EXPECT_EQ(units(stopped), "c2") << "a checkpoint on disk makes up for it";
  options.keeps_state = false;
  options.checkpoint_every = 0;
  options.checkpoint_at_end = false;
  RunSchedule without_state(options);
  EXPECT_EQ(units(without_state), "t1 t2 t3 t4 t5 t6 t7 v7");
}

TEST(RunSchedule, a_step_that_is_archived_has_a_checkpoint) {  // RS-1
  RunScheduleOptions options = options_of(6, 0, 4);
  options.archive_every = 2;
  RunSchedule schedule(options);
  EXPECT_EQ(units(schedule), "t1 t2 c2 t3 t4 c4 t5 t6 v6 c6");
}

TEST(RunSchedule, a_pause_after_a_step_follows_its_validation_and_checkpoint_and_a_resume_lifts_it) {  // RS-5
  RunScheduleOptions options = options_of(4, 2, 2);
  options.pause_after = 2;
  RunSchedule schedule(options);
  EXPECT_EQ(units(schedule, 1), "t1");
  EXPECT_FALSE(schedule.paused());
  EXPECT_EQ(units(schedule), "t2 v2 c2");
  EXPECT_TRUE(schedule.paused());
  EXPECT_FALSE(schedule.complete());
  schedule.resume();
  EXPECT_EQ(units(schedule), "t3 t4 v4 c4");
  RunSchedule lifted(options);
  EXPECT_EQ(units(lifted, 1), "t1");
  lifted.resume();
  EXPECT_EQ(units(lifted), "t2 v2 c2 t3 t4 v4 c4");
}

TEST(RunSchedule, a_pause_after_a_step_that_is_done_holds_the_run_before_its_first) {  // RS-5
  RunScheduleOptions options = options_of(9, 0, 0);
  options.pause_after = 0;
  RunSchedule fresh(options);
  EXPECT_EQ(units(fresh), "");
  EXPECT_TRUE(fresh.paused());
  options.pause_after = 3;
  options.first_step = 6;
  RunSchedule resumed(options);
  EXPECT_EQ(units(resumed), "");
  EXPECT_EQ(resumed.last_step(), 5U);
  resumed.stop();
  EXPECT_TRUE(resumed.complete());
}

TEST(RunSchedule, owes_what_follows_a_step_until_it_is_handed_out) {
  RunSchedule schedule(options_of(9, 2, 0));
  EXPECT_EQ(units(schedule, 2), "t1 t2");
  EXPECT_TRUE(schedule.owed(StepId(1)).empty());
  const std::vector<RunUnit> owed = schedule.owed(StepId(3));
  ASSERT_EQ(owed.size(), 1U);
  EXPECT_EQ(schedule.owed(StepId(2)).size(), 1U);
  EXPECT_EQ(units(schedule, 1), "v2");
  EXPECT_TRUE(schedule.owed(StepId(3)).empty());
  (void)schedule.request_checkpoint();
  EXPECT_EQ(schedule.owed(StepId(2)).size(), 1U);
  RunScheduleOptions options = options_of(3, 2, 0);
  options.first_step = 3;
  options.owed = owed;
  RunSchedule going_on(options);
  EXPECT_EQ(units(going_on), "v2 t3 v3 c3");
  options.first_step = 4;
  options.owed->clear();
  RunSchedule at_the_end(options);
  EXPECT_EQ(units(at_the_end), "") << "it was validated before the loss";
}

TEST(RunSchedule, a_resumed_run_goes_on_where_it_stood) {
  RunScheduleOptions options = options_of(4, 2, 0);
  options.first_step = 3;
  RunSchedule schedule(options);
  EXPECT_EQ(units(schedule), "t3 t4 v4 c4");
}

TEST(RunSchedule, a_run_resumed_at_its_end_is_validated_and_nothing_else) {
  RunScheduleOptions options = options_of(4, 0, 0);
  options.first_step = 5;
  RunSchedule schedule(options);
  EXPECT_EQ(units(schedule), "v4");
  options.first_step = 8;  // as if the job had fewer steps than the checkpoint: the values are those after step 7
  RunSchedule beyond(options);
  EXPECT_EQ(units(beyond), "v7");
  options.validate_at_end = false;
  RunSchedule nothing(options);
  EXPECT_EQ(units(nothing), "");
  RunSchedule stopped(options);
  stopped.stop();
  EXPECT_EQ(units(stopped), "");
}

TEST(RunSchedule, after_stop_the_last_step_handed_out_is_kept_and_no_other_follows) {  // RS-2
  RunSchedule schedule(options_of(9, 0, 0));
  EXPECT_EQ(units(schedule, 3), "t1 t2 t3");
  schedule.stop();
  schedule.stop();
  EXPECT_EQ(units(schedule), "c3");
}

TEST(RunSchedule, a_run_without_state_leaves_no_checkpoint_when_it_is_stopped) {  // RS-2
  RunScheduleOptions options = options_of(9, 0, 0);
  options.keeps_state = false;
  RunSchedule schedule(options);
  EXPECT_EQ(units(schedule, 3), "t1 t2 t3");
  schedule.stop();
  EXPECT_EQ(units(schedule), "");
}

TEST(RunSchedule, stop_before_the_first_step_leaves_nothing_to_do) {  // RS-2
  RunSchedule schedule(options_of(9, 1, 1));
  schedule.stop();
  EXPECT_EQ(units(schedule), "");
  RunScheduleOptions options = options_of(9, 1, 1);
  options.first_step = 4;
  RunSchedule resumed(options);
  resumed.stop();
  EXPECT_EQ(units(resumed), "");
}

TEST(RunSchedule, a_step_that_is_withdrawn_was_never_handed_out) {  // RS-2
  RunSchedule schedule(options_of(9, 4, 4));
  EXPECT_EQ(units(schedule, 4), "t1 t2 t3 t4");
  schedule.withdraw();
  EXPECT_EQ(schedule.last_step(), 3U);
  schedule.stop();
  EXPECT_EQ(units(schedule), "c3");
  RunSchedule first(options_of(9, 1, 1));
  EXPECT_EQ(units(first, 1), "t1");
  first.withdraw();
  first.stop();
  EXPECT_EQ(units(first), "");
  EXPECT_TRUE(first.complete());
  RunSchedule goes_on(options_of(5, 0, 2));
  EXPECT_EQ(units(goes_on, 2), "t1 t2");
  goes_on.withdraw();
  EXPECT_EQ(units(goes_on), "t2 c2 t3 t4 c4 t5 v5 c5");
}

TEST(RunSchedule, stop_at_any_moment_leaves_exactly_one_checkpoint_of_the_last_step) {  // RS-2
  for (int taken = 1; taken <= 12; ++taken) {
    SCOPED_TRACE("stopped after " + std::to_string(taken) + " units");
    RunSchedule schedule(options_of(4, 1, 2));  // t1 v1 t2 v2 c2 t3 v3 t4 v4 c4
    const std::string before = units(schedule, taken);
    schedule.stop();
    const std::string after = units(schedule);
    EXPECT_EQ(after.find('t'), std::string::npos);
    EXPECT_EQ(after.find('v'), std::string::npos) << "a person who stops a run does not want to wait for a validation";
    const std::string all = " " + before + " " + after + " ";
    const std::string last = before.substr(before.rfind('t') + 1, 1);
    const std::string wanted = " c" + last + " ";
    const std::size_t at = all.find(wanted);
    ASSERT_NE(at, std::string::npos) << all;
    EXPECT_EQ(all.find(wanted, at + 1), std::string::npos) << all;
  }
}

TEST(RunSchedule, while_paused_nothing_is_handed_out_and_nothing_is_lost) {  // RS-3
  RunSchedule schedule(options_of(4, 2, 3));
  EXPECT_EQ(units(schedule, 2), "t1 t2");
  schedule.pause();
  EXPECT_EQ(units(schedule), "");
  EXPECT_FALSE(schedule.complete());
  schedule.resume();
  EXPECT_EQ(units(schedule), "v2 t3 c3 t4 v4 c4");
  EXPECT_TRUE(schedule.complete());
}

TEST(RunSchedule, stop_ends_a_pause_and_a_stopped_run_cannot_be_paused) {  // RS-3
  RunSchedule schedule(options_of(9, 0, 0));
  EXPECT_EQ(units(schedule, 3), "t1 t2 t3");
  schedule.pause();
  schedule.stop();
  schedule.pause();
  EXPECT_FALSE(schedule.paused());
  EXPECT_EQ(units(schedule), "c3");
  EXPECT_TRUE(schedule.complete());
}

TEST(RunSchedule, a_checkpoint_that_is_asked_for_comes_first_and_once_also_while_paused) {  // RS-3, RS-4
  RunSchedule schedule(options_of(4, 2, 3));
  EXPECT_FALSE(schedule.request_checkpoint()) << "no step has been trained";
  EXPECT_EQ(units(schedule, 2), "t1 t2");
  schedule.pause();
  EXPECT_EQ(schedule.request_checkpoint(), StepId(2));
  EXPECT_EQ(schedule.request_checkpoint(), StepId(2));
  EXPECT_EQ(units(schedule), "c2");
  EXPECT_EQ(schedule.request_checkpoint(), StepId(2));
  EXPECT_EQ(units(schedule), "");
  schedule.resume();
  EXPECT_EQ(units(schedule), "v2 t3 c3 t4 v4 c4");
}

TEST(RunSchedule, a_checkpoint_that_is_due_anyway_is_only_brought_forward) {  // RS-4
  RunSchedule schedule(options_of(4, 1, 1));
  EXPECT_EQ(units(schedule, 1), "t1");
  EXPECT_EQ(schedule.request_checkpoint(), StepId(1));
  EXPECT_EQ(units(schedule, 3), "c1 v1 t2");
  EXPECT_EQ(schedule.request_checkpoint(), StepId(2));
  schedule.stop();
  EXPECT_EQ(units(schedule), "c2");
}

TEST(RunSchedule, a_checkpoint_asked_for_before_a_stop_is_the_last_one) {  // RS-2, RS-4
  RunSchedule schedule(options_of(9, 0, 0));
  EXPECT_EQ(units(schedule, 3), "t1 t2 t3");
  EXPECT_EQ(schedule.request_checkpoint(), StepId(3));
  EXPECT_FALSE(schedule.complete());
  schedule.stop();
  EXPECT_EQ(units(schedule), "c3");
}

TEST(RunSchedule, a_run_without_state_refuses_checkpoints) {  // RS-4
  RunScheduleOptions options = options_of(9, 0, 0);
  options.keeps_state = false;
  RunSchedule schedule(options);
  EXPECT_EQ(units(schedule, 1), "t1");
  EXPECT_FALSE(schedule.request_checkpoint());
}

}  // namespace
}  // namespace maestro
