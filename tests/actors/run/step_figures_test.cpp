// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/step_figures.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

using Clock = StepFigures::Clock;
using std::chrono::milliseconds;

class StepFiguresTest : public ::testing::Test {
 protected:
  void pass(std::uint64_t step, std::uint32_t micro_batch = 0) {
    MicroBatchDone done;
    done.step = StepId(step);
    done.index = micro_batch;
    done.forward_ms = 10;
    done.backward_ms = 20;
    done.age_ms = 100;
    figures_.pass_done(done, now_);
  }
  void end(std::uint64_t step, double seconds = 0.2) {
    figures_.step_ended(StepId(step), seconds, {8, 8, 64}, now_, std::chrono::system_clock::now());
  }

  StepFigures figures_;
  Clock::time_point now_ = Clock::now();
};

TEST_F(StepFiguresTest, count_every_end_also_of_a_step_that_is_done_again) {  // FG-1
  for (const std::uint64_t step : {1, 2, 3}) end(step);
  figures_.begin_again();
  for (const std::uint64_t step : {2, 3}) end(step, 0.7);
  EXPECT_EQ(figures_.totals().seconds.count(), 5u);
  EXPECT_NEAR(figures_.totals().seconds.sum, 2.0, 1e-9);
  EXPECT_EQ(figures_.totals().samples, 40u);
  EXPECT_EQ(figures_.totals().tokens, 320u);
  EXPECT_EQ(figures_.totals().longest_s, 0.7);
}

TEST_F(StepFiguresTest, place_passes_by_the_time_of_their_report) {
  pass(1);
  end(1);
  ASSERT_EQ(figures_.totals().recent.size(), 1u);
  const StepPasses& step = *figures_.totals().recent.front();
  ASSERT_EQ(step.passes.size(), 2u);
  EXPECT_FALSE(step.passes[0].backward);
  EXPECT_EQ(step.passes[0].begin, now_ - milliseconds(100));
  EXPECT_EQ(step.passes[0].end, now_ - milliseconds(90));
  EXPECT_TRUE(step.passes[1].backward);
  EXPECT_EQ(step.passes[1].begin, now_ - milliseconds(20));
  EXPECT_EQ(step.passes[1].end, now_);
}

TEST_F(StepFiguresTest, have_each_measured_step_once_and_the_last_alone) {  // FG-2, FG-3
  figures_.keep_measured(4);
  const auto measure = [this](std::uint64_t step, double ms) {
    MeasuredStep measured;
    measured.step = StepId(step);
    measured.ms = ms;
    figures_.step_measured(std::move(measured));
  };
  for (const std::uint64_t step : {1, 2, 3, 4, 5}) measure(step, 1);
  for (const std::uint64_t step : {4, 5}) measure(step, 2);
  const auto& kept = figures_.measured().kept();
  ASSERT_EQ(kept.size(), 4u);
  EXPECT_EQ(kept.front().step, StepId(2));
  EXPECT_EQ(kept[1].ms, 1);
  EXPECT_EQ(kept[2].step, StepId(4));
  EXPECT_EQ(kept[2].ms, 2);
}

TEST_F(StepFiguresTest, keep_few_steps_and_few_passes_of_each) {  // FG-2
  for (std::uint32_t micro_batch = 0; micro_batch < 5000; ++micro_batch) pass(1, micro_batch);
  end(1);
  EXPECT_EQ(figures_.totals().recent.front()->passes.size(), StepFigures::kept_passes);
  EXPECT_EQ(figures_.totals().recent.front()->left_out, 10000 - StepFigures::kept_passes);
  for (std::uint64_t step = 2; step <= 9; ++step) {
    pass(step);
    end(step);
  }
  ASSERT_EQ(figures_.totals().recent.size(), StepFigures::kept_steps);
  EXPECT_EQ(figures_.totals().recent.front()->step, StepId(7));
  EXPECT_EQ(figures_.totals().recent.back()->step, StepId(9));
}

TEST_F(StepFiguresTest, have_the_use_of_the_lanes_over_the_last_steps) {  // FG-4
  const Lane lane(SectionId(1), ReplicaIndex(0));
  const auto end_of = [&](double busy_ms, double waited_ms, bool trained = true) {
    figures_.lanes_ended({{lane, {{busy_ms, 2, {{"teacher", waited_ms}, {"device", 1}}}, {}, {}}}}, trained);
  };
  const auto use = [&] { return figures_.totals().recent_use.at(lane); };
  end_of(20, 77);
  EXPECT_DOUBLE_EQ(use().busy_share(), 0.2);
  EXPECT_DOUBLE_EQ(use().device_share(), 0.22);
  end_of(50, 47, false);  // a validation
  EXPECT_DOUBLE_EQ(use().busy_share(), 0.2);
  end_of(60, 37);
  EXPECT_DOUBLE_EQ(use().busy_share(), 0.4);
  for (std::size_t step = 0; step < 2 * StepFigures::use_steps; ++step) end_of(90, 7);
  EXPECT_DOUBLE_EQ(use().busy_share(), 0.9) << "the first steps have left";
  EXPECT_LE(use().whole_ms, 100.0 * 2 * StepFigures::use_steps);
  EXPECT_GE(use().whole_ms, 100.0 * StepFigures::use_steps);
}

TEST_F(StepFiguresTest, forget_the_passes_of_a_step_that_is_done_again) {
  pass(1);
  figures_.begin_again();
  pass(1);
  end(1);
  EXPECT_EQ(figures_.totals().recent.front()->passes.size(), 2u);
}

}  // namespace
}  // namespace maestro
