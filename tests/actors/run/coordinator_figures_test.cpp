// SPDX-License-Identifier: Apache-2.0
// The coordinator's figures: the data position in a checkpoint, and the times of steps and of the run.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/actors/run/coordinator_bench.hpp"

namespace maestro {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

class CoordinatorFigures : public CoordinatorTest {};

TEST_F(CoordinatorFigures, a_checkpoint_counts_the_samples_before_it_and_the_epochs_that_they_make) {
  epoch_samples_ = 4;
  RunScheduleOptions schedule = plain(5);
  schedule.checkpoint_at_end = true;
  start(1, schedule);
  for (std::uint64_t step = 1; step <= 5; ++step) finish_step(step);
  const StepBoundary snapshot = marks_.back();
  ASSERT_EQ(snapshot.kind, StepBoundary::Kind::snapshot);
  for (const std::uint32_t section : {0u, 1u}) write_part(snapshot, section);
  drain_writer();
  const Manifest manifest = load_checkpoint(record_->checkpoint).value_or_throw();
  EXPECT_EQ(manifest.step, 5u);
  EXPECT_EQ(manifest.data_position, 10u);
  EXPECT_EQ(manifest.epoch, 2u);
}

TEST_F(CoordinatorFigures, a_plan_follows_the_transfers_of_the_last_step_that_has_ended) {
  measure_ = true;
  start(1, plain(3));
  ASSERT_EQ(transfers_.size(), 2u);  // planned a step ahead
  EXPECT_TRUE(transfers_[0].empty() && transfers_[1].empty());
  for (std::uint32_t section = 0; section < 2; ++section) {
    StepDone done{SectionId(section), ReplicaIndex(0), StepId(1), Pass::train, 1.0, 0.1};
    done.transfers[{EdgeId(3), Direction::forward}] = {4.0 + 8 * section, 2};
    bench_.send(coordinator_, done);
  }
  bench_.deliver_all();
  ASSERT_EQ(transfers_.size(), 3u);
  ASSERT_EQ(transfers_[2].size(), 1u);
  EXPECT_EQ(transfers_[2][0].channel, (Channel{EdgeId(3), Direction::forward}));
  EXPECT_DOUBLE_EQ(transfers_[2][0].ms, 4);  // 16 ms divided by four pieces
}

TEST_F(CoordinatorFigures, a_run_unlike_its_prediction_has_one_line_after_twenty_steps) {
  predicted_.predicted_step_ms = 3.6e6;
  start(1, plain(45));
  for (std::uint64_t step = 1; step <= 19; ++step) finish_step(step);
  EXPECT_FALSE(record_->drift);
  for (std::uint64_t step = 20; step <= 45; ++step) finish_step(step);
  ASSERT_TRUE(record_->drift);
  EXPECT_TRUE(record_->drift->is_off());
  const std::string text = terminal_.str();
  const std::size_t line = text.find("% below the 3600000.0 ms of [plan]");
  ASSERT_NE(line, std::string::npos) << text;
  EXPECT_EQ(text.find("of [plan]", line + 40), std::string::npos) << text;
  EXPECT_EQ(figures_->measured().kept().size(), measured_steps_kept(1));
  EXPECT_EQ(figures_->measured().kept().back().samples.size(), 2u);
}

TEST_F(CoordinatorFigures, a_run_as_predicted_or_without_a_prediction_has_none) {
  start(1, plain(21));
  for (std::uint64_t step = 1; step <= 21; ++step) finish_step(step);
  EXPECT_FALSE(record_->drift);
  EXPECT_EQ(terminal_.str().find("[plan]"), std::string::npos);
}

TEST_F(CoordinatorFigures, the_training_time_is_that_of_each_step_once) {
  const Clock::time_point begin = Clock::now();
  constexpr std::uint64_t steps = 40;
  start(1, plain(steps));
  for (std::uint64_t step = 1; step <= steps; ++step) finish_step(step);
  EXPECT_GT(record_->train_seconds, 0);
  EXPECT_LE(record_->train_seconds * 1000, ms_since(begin));
}

TEST_F(CoordinatorFigures, the_time_of_a_step_does_not_count_the_validation_before_it) {
  constexpr std::uint64_t steps = 20;
  RunScheduleOptions schedule = plain(steps);
  schedule.validate_every = 1;
  const Clock::time_point begin = Clock::now();
  start(1, schedule);
  double validation_ms = 0;
  double run_ms = 0;  // up to the last step, without the validations before it
  for (std::uint64_t step = 1; step <= steps; ++step) {
    finish_step(step);
    run_ms = ms_since(begin) - validation_ms;
    const Clock::time_point validation = Clock::now();
    for (int query = 0; query < 50; ++query) bench_.ask<RunStatus>(coordinator_, RunStatusRequest{});
    validation_ms += ms_since(validation);
    for (const std::uint32_t section : {0u, 1u}) {
      bench_.send(coordinator_, StepDone{SectionId(section), ReplicaIndex(0), StepId(step), Pass::evaluate, 0, 0});
    }
    bench_.deliver_all();
  }
  double steps_ms = 0;
  for (const StepRow& row : record_->steps.kept()) steps_ms += row.section == "first" ? row.metrics.at("step_ms") : 0;
  EXPECT_GT(steps_ms, 0);
  EXPECT_LE(steps_ms, run_ms);
}

TEST_F(CoordinatorFigures, neither_the_time_of_a_step_nor_that_of_the_run_counts_a_pause) {
  const Clock::time_point begin = Clock::now();
  start(0, plain(20));
  double paused_ms = 0;
  double run_ms = 0;  // up to the last step, without the pauses before it
  for (std::uint64_t step = 1; step <= 20; ++step) {
    bench_.send(coordinator_, PauseRequest{true});
    finish_step(step);
    run_ms = ms_since(begin) - paused_ms;
    const Clock::time_point pause = Clock::now();
    for (int query = 0; query < 50; ++query) bench_.ask<RunStatus>(coordinator_, RunStatusRequest{});
    paused_ms += ms_since(pause);
    bench_.ask<PauseAnswer>(coordinator_, PauseRequest{false});
  }
  double steps_ms = 0;
  for (const StepRow& row : record_->steps.kept()) steps_ms += row.section == "first" ? row.metrics.at("step_ms") : 0;
  EXPECT_GT(steps_ms, 0);
  EXPECT_LE(steps_ms, run_ms);
  EXPECT_LE(record_->train_seconds * 1000, run_ms);
  steps_ms = 0;
  for (const SchedulingRow& row : record_->scheduling.kept()) steps_ms += row.step_ms;
  EXPECT_NEAR(steps_ms, record_->train_seconds * 1000, 1e-6);
}

TEST_F(CoordinatorFigures, the_rate_is_that_of_the_last_twenty_steps_or_of_as_many_as_there_are) {
  start(1, plain(100));
  const auto rate = [&] { return bench_.ask<RunStatus>(coordinator_, RunStatusRequest{}).samples_per_s; };
  const auto add_step = [&](double begin_ms) { record_->scheduling.emplace_back().begin_ms = begin_ms; };
  add_step(1000);
  EXPECT_EQ(rate(), 0) << "a step has no length before the next begins";
  add_step(1100);
  add_step(1400);
  EXPECT_DOUBLE_EQ(rate(), 2 * 2 * 1000 / 400.0);
  for (int step = 1; step <= 20; ++step) add_step(1400 + 10 * step);
  EXPECT_DOUBLE_EQ(rate(), 20 * 2 * 1000 / 200.0);
}

}  // namespace
}  // namespace maestro
