// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/lane_clock.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

LaneClock::Time at(int ms) {
  return LaneClock::Time(std::chrono::milliseconds(1000 + ms));
}

TEST(LaneClock, times_are_those_of_the_states) {  // LK-1
  LaneClock clock;
  clock.waits("teacher", at(0));
  clock.waits("teacher", at(2));
  clock.runs_pass(at(5));
  clock.pass_ended(7, at(15));
  clock.waits("teacher", at(15));
  clock.ends_step(at(17));
  clock.waits("norm", at(20));
  clock.ends_step(at(24));
  const LaneTimes times = clock.take(at(25));
  EXPECT_DOUBLE_EQ(times.busy_ms, 7);
  EXPECT_DOUBLE_EQ(times.step_ms, 4);
  EXPECT_THAT(times.wait_ms, ElementsAre(Pair("device", 3), Pair("norm", 4), Pair("teacher", 7)));
}

TEST(LaneClock, a_state_goes_on_after_its_time_was_taken) {  // LK-1
  LaneClock clock;
  EXPECT_EQ(clock.take(at(0)).step_ms, 0) << "it has not begun";
  clock.ends_step(at(10));
  EXPECT_DOUBLE_EQ(clock.take(at(12)).step_ms, 2);
  EXPECT_DOUBLE_EQ(clock.take(at(15)).step_ms, 3);
}

TEST(LaneClock, a_device_that_measures_more_than_the_time_of_the_pass_takes_no_more) {  // LK-1
  LaneClock clock;
  clock.runs_pass(at(0));
  clock.pass_ended(12, at(10));
  const LaneTimes times = clock.take(at(10));
  EXPECT_DOUBLE_EQ(times.busy_ms, 10);
  EXPECT_TRUE(times.wait_ms.empty());
}

}  // namespace
}  // namespace maestro
