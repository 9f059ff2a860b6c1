// SPDX-License-Identifier: Apache-2.0
#include "actors/live/health.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class HealthTest : public ::testing::Test {
 protected:
  [[nodiscard]] bool healthy_after(int s) { return judge_.judge(run_, events_, start_ + seconds(s)).healthy; }
  void step_ends(int s) { run_.figures.last_end = start_ + seconds(s); }

  HealthJudge judge_{10};
  HealthJudge::Clock::time_point start_ = HealthJudge::Clock::now();
  RunStatus run_ = [] {
    RunStatus run;
    run.state = RunState::running;
    run.last_step = 7;
    return run;
  }();
  std::uint64_t events_ = 1;
};

TEST_F(HealthTest, waiting_is_healthy) {  // HE-1
  EXPECT_TRUE(healthy_after(0));
  EXPECT_TRUE(healthy_after(3600)) << "no step has ended yet";
  step_ends(0);
  for (const RunState state : {RunState::starting, RunState::paused, RunState::finished}) {
    run_.state = state;
    EXPECT_TRUE(healthy_after(7200)) << name_of(state);
  }
}

TEST_F(HealthTest, a_run_without_progress_is_not) {  // HE-2
  step_ends(0);
  EXPECT_TRUE(healthy_after(1));
  EXPECT_TRUE(healthy_after(60));
  const auto verdict = judge_.judge(run_, events_, start_ + seconds(62));
  EXPECT_FALSE(verdict.healthy);
  EXPECT_THAT(verdict.reason, HasSubstr("running, step 7: no step or other event has ended for 61 s (limit 60 s)"));
  step_ends(62);
  EXPECT_TRUE(healthy_after(63));
}

TEST_F(HealthTest, steps_may_take_as_long_as_they_have_taken) {  // HE-2
  step_ends(0);
  run_.figures.longest_s = 100;
  EXPECT_TRUE(healthy_after(1));
  EXPECT_TRUE(healthy_after(401));
  EXPECT_FALSE(healthy_after(402));
}

TEST_F(HealthTest, any_event_is_progress) {  // HE-2
  step_ends(0);
  EXPECT_TRUE(healthy_after(50));
  ++events_;
  EXPECT_TRUE(healthy_after(100));
  EXPECT_TRUE(healthy_after(160));
  EXPECT_FALSE(healthy_after(161));
}

TEST_F(HealthTest, the_time_of_a_pause_does_not_count) {
  step_ends(0);
  run_.state = RunState::paused;
  EXPECT_TRUE(healthy_after(1000));
  run_.state = RunState::running;
  EXPECT_TRUE(healthy_after(1060));
  EXPECT_FALSE(healthy_after(1061));
}

TEST_F(HealthTest, without_a_limit_of_the_run_there_is_none_here) {  // HE-2
  judge_ = HealthJudge(0);
  step_ends(0);
  EXPECT_TRUE(healthy_after(0));
  EXPECT_TRUE(healthy_after(100000));
}

}  // namespace
}  // namespace maestro
