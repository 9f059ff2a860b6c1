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
  clock.work_ended(7, at(15));
  clock.waits("teacher", at(15));
  clock.ends_step(at(17));
  clock.waits("norm", at(20));
  clock.ends_step(at(24));
  const LaneTimes times = clock.take(at(25));
  EXPECT_DOUBLE_EQ(times.busy_ms, 7);
  EXPECT_DOUBLE_EQ(times.step_end_ms, 4);
  EXPECT_THAT(times.wait_ms, ElementsAre(Pair("device", 3), Pair("norm", 4), Pair("teacher", 7)));
}

TEST(LaneClock, a_state_goes_on_after_its_time_was_taken) {  // LK-1
  LaneClock clock;
  EXPECT_EQ(clock.take(at(0)).step_end_ms, 0) << "it has not begun";
  clock.ends_step(at(10));
  EXPECT_DOUBLE_EQ(clock.take(at(12)).step_end_ms, 2);
  EXPECT_DOUBLE_EQ(clock.take(at(15)).step_end_ms, 3);
}

TEST(LaneClock, a_device_that_measures_more_than_the_time_of_the_pass_takes_no_more) {  // LK-1
  LaneClock clock;
  clock.runs_pass(at(0));
  clock.work_ended(12, at(10));
  const LaneTimes times = clock.take(at(10));
  EXPECT_DOUBLE_EQ(times.busy_ms, 10);
  EXPECT_TRUE(times.wait_ms.empty());
}

TEST(LaneClock, the_end_of_a_step_is_the_work_of_the_device_and_its_queue_is_a_wait) {  // LK-1
  LaneClock clock;
  clock.ends_step(at(0));
  clock.work_ended(1, at(8));  // seven milliseconds of other lanes' work first
  clock.ends_step(at(8));
  clock.work_ended(2, at(10));
  const LaneTimes times = clock.take(at(11));
  EXPECT_DOUBLE_EQ(times.step_end_ms, 4);  // the last millisecond: the replica's messages
  EXPECT_THAT(times.wait_ms, ElementsAre(Pair("device", 7)));
}

TEST(LaneClock, the_part_of_a_replica_in_an_exchange_is_work) {  // LK-1
  LaneClock clock;
  clock.waits("reduction", at(0));
  clock.worked_meanwhile(2, at(5));
  clock.worked_meanwhile(30, at(7));  // measured by another clock
  const LaneTimes all_work = clock.take(at(7));
  EXPECT_DOUBLE_EQ(all_work.step_end_ms, 7);
  EXPECT_THAT(all_work.wait_ms, ElementsAre(Pair("reduction", 0)));
  clock.waits("reduction", at(7));
  clock.worked_meanwhile(1, at(11));
  const LaneTimes times = clock.take(at(12));
  EXPECT_DOUBLE_EQ(times.step_end_ms, 1);
  EXPECT_THAT(times.wait_ms, ElementsAre(Pair("reduction", 4)));
}

TEST(LaneClock, the_copy_of_a_checkpoint_stays_a_wait) {
  LaneClock clock;
  clock.waits("checkpoint", at(0));
  clock.work_ended(3, at(4));
  const LaneTimes times = clock.take(at(4));
  EXPECT_DOUBLE_EQ(times.step_end_ms, 0);
  EXPECT_THAT(times.wait_ms, ElementsAre(Pair("checkpoint", 4)));
}

}  // namespace
}  // namespace maestro
