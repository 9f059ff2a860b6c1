// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/progress.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace maestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(FormatProgress, shows_what_is_known) {
  EXPECT_EQ(format_progress({12, 100, 2.34561, 512.4, 185.0}), "step  12/100  loss 2.3456  512 samples/s  3m05s left");
  EXPECT_EQ(format_progress({100, 100, {}, {}, {}}), "step 100/100");
  EXPECT_EQ(format_progress({1, 1000, 0.5, {}, {}}), "step    1/1000  loss 0.5000");
  EXPECT_EQ(format_progress({1, 2, {}, 0.256, {}}), "step 1/2  0.26 samples/s");
}

TEST(FormatProgress, shows_the_parts_of_the_loss_behind_it) {
  Progress progress{12, 100, 2.34561, 512.4, {}};
  progress.parts = {{"ce", 2.1}, {"kl", 0.24561}};
  EXPECT_EQ(format_progress(progress), "step  12/100  loss 2.3456  ce 2.1000  kl 0.2456  512 samples/s");
}

TEST(FormatFigures, has_the_loss_first) {
  EXPECT_EQ(format_figures({{"ce", 2.1}, {"kl", 0.2}, {"loss", 2.3}}), "loss 2.3000, ce 2.1000, kl 0.2000");
  EXPECT_EQ(format_figures({{"ce", 2.1}}), "ce 2.1000");
  EXPECT_EQ(format_figures({}), "");
}

TEST(FormatProgress, a_lost_loss_is_shown_as_such) {
  EXPECT_EQ(format_progress({1, 2, std::numeric_limits<double>::quiet_NaN(), {}, {}}), "step 1/2  loss nan");
}

TEST(FormatDuration, uses_the_two_largest_units) {
  EXPECT_EQ(format_duration(0), "0s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(185), "3m05s");
  EXPECT_EQ(format_duration(3600), "1h00m");
  EXPECT_EQ(format_duration(7620), "2h07m");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600 + 59), "3d04h");
}

TEST(FormatDuration, an_impossible_one_is_a_question_mark) {
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::quiet_NaN()), "?");
  EXPECT_EQ(format_duration(1e300), "?");
}

TEST(Truncated, cuts_between_characters) {
  EXPECT_EQ(truncated("step 1/2", 4), "step");
  EXPECT_EQ(truncated("step", 4), "step");
  EXPECT_EQ(truncated("step", 0), "");
  EXPECT_EQ(truncated("\xc3\xa4\xc3\xb6x", 2), "\xc3\xa4\xc3\xb6");
}

TEST(ProgressMeter, an_even_pace_gives_exact_speed_and_time_left) {
  const SteadyTime start{};
  ProgressMeter meter(0, 10, 16, start);
  for (int step = 1; step <= 4; ++step) {
    const auto progress = meter.finished(step, 1.0, start + seconds(2 * step));
    ASSERT_TRUE(progress.samples_per_s && progress.seconds_left);
    EXPECT_NEAR(*progress.samples_per_s, 8.0, 1e-9);
    EXPECT_NEAR(*progress.seconds_left, 2.0 * (10 - step), 1e-9);
    EXPECT_EQ(progress.loss, 1.0);
  }
}

TEST(ProgressMeter, steps_before_a_resume_do_not_count_as_speed) {
  const SteadyTime start{};
  ProgressMeter meter(90, 100, 1, start);
  const auto progress = meter.finished(91, {}, start + seconds(1));
  EXPECT_EQ(progress.step, 91);
  EXPECT_NEAR(progress.samples_per_s.value(), 1.0, 1e-9);
  EXPECT_NEAR(progress.seconds_left.value(), 9.0, 1e-9);
}

TEST(ProgressMeter, follows_a_change_of_pace) {
  SteadyTime now{};
  ProgressMeter meter(0, 1000, 1, now);
  Progress progress;
  for (int step = 1; step <= 100; ++step) progress = meter.finished(step, {}, now += milliseconds(100));
  EXPECT_NEAR(progress.samples_per_s.value(), 10.0, 1e-6);
  for (int step = 101; step <= 200; ++step) progress = meter.finished(step, {}, now += milliseconds(1000));
  // 0.95^100 of the old pace is left: less than a hundredth.
  EXPECT_NEAR(progress.samples_per_s.value(), 1.0, 0.01);
}

TEST(ProgressMeter, a_step_told_twice_or_in_no_time_gives_no_nonsense) {
  const SteadyTime start{};
  ProgressMeter meter(0, 10, 4, start);
  EXPECT_FALSE(meter.finished(0, {}, start + seconds(1)).samples_per_s);
  EXPECT_FALSE(meter.finished(1, {}, start).seconds_left);
  const auto first = meter.finished(2, {}, start + seconds(1));
  const auto again = meter.finished(2, 0.5, start + seconds(5));
  EXPECT_EQ(again.samples_per_s, first.samples_per_s);
  EXPECT_EQ(again.loss, 0.5);
}

}  // namespace
}  // namespace maestro
