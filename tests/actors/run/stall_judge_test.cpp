// SPDX-License-Identifier: Apache-2.0
#include "actors/run/watch/stall_judge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class StallJudgeTest : public ::testing::Test {
 protected:
  StallLook waiting() const {
    StallLook look;
    look.announced = true;
    look.events = 100;
    look.waiting = {"section 'a' replica 0 waits for b"};
    return look;
  }
  StallLook working() const {
    StallLook look = waiting();
    look.working = {"section 'a' replica 0 has been in forward of step 2"};
    return look;
  }
  /// Looks at the judge's interval, every 200 ms. Returns the first verdict with content, and its time.
  std::pair<seconds, StallJudge::Verdict> first_verdict(const StallLook& look, seconds most) {
    for (StallJudge::Duration now = now_; now < now_ + most; now += milliseconds(200)) {
      if (!judge_.wants_look(events_, now)) continue;
      const StallJudge::Verdict verdict = judge_.judge(look, now);
      if (verdict.ended || verdict.report) return {std::chrono::duration_cast<seconds>(now - now_), verdict};
    }
    return {};
  }

  StallJudge judge_{seconds(10)};
  StallJudge::Duration now_{0};
  std::uint64_t events_ = 0;
};

TEST_F(StallJudgeTest, ends_a_run_in_which_all_wait) {  // SJ-2
  const auto [after, verdict] = first_verdict(waiting(), seconds(100));
  EXPECT_EQ(after, seconds(15));
  ASSERT_TRUE(verdict.ended);
  EXPECT_EQ(*verdict.ended,
            "the run is stalled: no progress for 15 s although work is announced; section 'a' replica 0 waits for b");
}

TEST_F(StallJudgeTest, adapts_to_the_longest_gap_between_events) {  // SJ-1
  EXPECT_FALSE(judge_.wants_look(1, seconds(30)));
  now_ = seconds(30);
  events_ = 1;
  EXPECT_EQ(judge_.limit(), seconds(120));
  EXPECT_EQ(first_verdict(waiting(), seconds(1000)).first, seconds(180));
}

TEST_F(StallJudgeTest, an_event_between_two_looks_excuses_the_run) {  // SJ-2
  for (int step = 0; step < 50; ++step) {
    StallLook look = waiting();
    look.events += static_cast<std::uint64_t>(step);  // a replica's event: a chunk has arrived
    const StallJudge::Duration now = seconds(10 + 5 * step);
    ASSERT_TRUE(judge_.wants_look(0, now));
    EXPECT_FALSE(judge_.judge(look, now).ended);
  }
}

TEST_F(StallJudgeTest, reports_long_work_and_never_ends_it) {  // SJ-3
  const auto [after, verdict] = first_verdict(working(), seconds(100));
  EXPECT_EQ(after, seconds(60));
  EXPECT_FALSE(verdict.ended);
  ASSERT_TRUE(verdict.report);
  EXPECT_THAT(*verdict.report, HasSubstr("no work has ended for 60 s: section 'a' replica 0 has been in forward"));
  now_ = seconds(60);
  EXPECT_EQ(first_verdict(working(), seconds(1000)).first, seconds(60)) << "the time has doubled";
}

TEST_F(StallJudgeTest, ends_work_that_is_longer_than_a_given_limit) {  // SJ-2, SJ-3
  judge_ = StallJudge(seconds(10), seconds(40));
  const auto [after, verdict] = first_verdict(working(), seconds(100));
  EXPECT_EQ(after, seconds(40));
  ASSERT_TRUE(verdict.ended);
  EXPECT_EQ(
      *verdict.ended,
      "no work has ended for 40 s, longer than train.work_timeout_s: section 'a' replica 0 has been in forward of "
      "step 2");
  judge_ = StallJudge(seconds(10), seconds(1));
  EXPECT_EQ(first_verdict(working(), seconds(100)).first, seconds(15)) << "two looks";
}

TEST_F(StallJudgeTest, after_an_event_long_work_is_reported_as_late_as_the_first_time) {  // SJ-1, SJ-3
  ASSERT_EQ(first_verdict(working(), seconds(100)).first, seconds(60));                   // 6 limits of 10 s
  EXPECT_FALSE(judge_.wants_look(1, seconds(70)));
  now_ = seconds(70);
  events_ = 1;
  ASSERT_EQ(judge_.limit(), seconds(280));
  EXPECT_EQ(first_verdict(working(), seconds(5000)).first, seconds(6 * 280));
}

TEST_F(StallJudgeTest, ends_a_run_in_which_an_actor_does_not_answer_twice) {  // SJ-2
  StallLook look = working();
  look.silent = {"section 'b' replica 1 on process 2"};
  const auto [after, verdict] = first_verdict(look, seconds(100));
  EXPECT_EQ(after, seconds(15));
  ASSERT_TRUE(verdict.ended);
  EXPECT_THAT(*verdict.ended, HasSubstr("no answer from section 'b' replica 1 on process 2 for 15 s"));
}

TEST_F(StallJudgeTest, a_pause_is_no_stall) {
  StallLook paused = waiting();
  paused.announced = false;
  const auto verdict = first_verdict(paused, seconds(10000)).second;
  EXPECT_FALSE(verdict.ended || verdict.report);
}

TEST_F(StallJudgeTest, the_silence_of_a_run_that_goes_on_counts_from_the_end_of_its_pause) {  // SJ-1
  StallLook paused = waiting();
  paused.announced = false;
  ASSERT_TRUE(judge_.wants_look(0, seconds(100)));
  EXPECT_FALSE(judge_.judge(paused, seconds(100)).ended);
  EXPECT_FALSE(judge_.wants_look(0, seconds(109)));
  EXPECT_TRUE(judge_.wants_look(0, seconds(110)));
}

}  // namespace
}  // namespace maestro
