// SPDX-License-Identifier: Apache-2.0
// Requests that the coordinator answers during a run: pause, interrupt, checkpoint, status and metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/actors/run/coordinator_bench.hpp"

namespace maestro {
namespace {

RunScheduleOptions endless() {
  return plain(1'000'000);
}

TEST_F(CoordinatorTest,
       a_pause_is_answered_when_the_run_stands_still_and_nothing_follows_until_it_is_resumed) {  // RS-3
  start(1, endless());
  EXPECT_EQ(announced(), 2u);
  caf::scoped_actor self(bench_.system());
  self->send(coordinator_, PauseRequest{true});
  bench_.deliver_all();
  EXPECT_EQ(bench_.ask<RunStatus>(coordinator_, RunStatusRequest{}).state, RunState::pausing);
  EXPECT_FALSE(self->has_next_message());
  finish_step(1);
  finish_step(2);
  EXPECT_EQ(announced(), 2u);
  self->receive([](const PauseAnswer& answer) {
    EXPECT_EQ(answer.state, RunState::paused);
    EXPECT_EQ(answer.step, StepId(2));
  });
  EXPECT_EQ(bench_.ask<PauseAnswer>(coordinator_, PauseRequest{true}).state, RunState::paused);
  EXPECT_FALSE(finished_);
  EXPECT_EQ(bench_.ask<PauseAnswer>(coordinator_, PauseRequest{false}).state, RunState::running);
  EXPECT_EQ(announced(), 4u);
}

TEST_F(CoordinatorTest, a_pause_may_come_and_go_before_the_run_begins) {
  begins_ = false;
  start(1, endless());
  EXPECT_EQ(bench_.ask<RunStatus>(coordinator_, RunStatusRequest{}).state, RunState::starting);
  EXPECT_EQ(bench_.ask<PauseAnswer>(coordinator_, PauseRequest{true}).state, RunState::paused);
  EXPECT_EQ(bench_.ask<PauseAnswer>(coordinator_, PauseRequest{false}).state, RunState::starting);
  EXPECT_EQ(announced(), 0u);
  bench_.send(coordinator_, Begin{});
  bench_.deliver_all();
  EXPECT_EQ(announced(), 2u);
}

TEST_F(CoordinatorTest, a_run_that_pauses_after_a_step_says_so_once_and_goes_on_at_a_resume) {  // RS-5
  RunScheduleOptions schedule = endless();
  schedule.pause_after = 2;
  start(1, schedule);
  EXPECT_EQ(announced(), 2u);
  finish_step(1);
  EXPECT_EQ(bench_.ask<RunStatus>(coordinator_, RunStatusRequest{}).state, RunState::pausing);
  finish_step(2);
  EXPECT_EQ(announced(), 2u);
  EXPECT_EQ(bench_.ask<PauseAnswer>(coordinator_, PauseRequest{true}).state, RunState::paused);
  const std::string told = terminal_.str();
  EXPECT_EQ(told.find("paused after step 2; `maestro continue` continues the run"), told.rfind("paused after"));
  EXPECT_NE(told.find("paused after step 2"), std::string::npos);
  EXPECT_EQ(bench_.ask<PauseAnswer>(coordinator_, PauseRequest{false}).state, RunState::running);
  EXPECT_EQ(announced(), 4u);
}

TEST_F(CoordinatorTest, a_pause_is_kept_for_the_run_that_goes_on_after_a_loss_until_a_resume) {  // CR-8
  start(1, endless());
  bench_.send(coordinator_, PauseRequest{true});
  bench_.deliver_all();
  EXPECT_EQ(record_->pause_after, 2u) << "announced";
  bench_.send(coordinator_, PauseRequest{false});
  bench_.deliver_all();
  EXPECT_FALSE(record_->pause_after);
}

TEST_F(CoordinatorTest, an_interrupt_before_the_run_begins_ends_it_when_all_are_connected) {
  begins_ = false;
  RunScheduleOptions schedule;
  schedule.steps = 5;
  start(2, schedule);
  bench_.send(coordinator_, Interrupt{});
  bench_.deliver_all();
  EXPECT_FALSE(finished_) << "processes that are not connected would miss the end";
  bench_.send(coordinator_, Begin{});
  bench_.deliver_all();
  EXPECT_TRUE(finished_);
  EXPECT_EQ(tokens_, 0u);
}

TEST_F(CoordinatorTest, an_interrupt_ends_a_pause_and_answers_who_waits_for_it) {  // CR-4
  start(0, endless());
  caf::scoped_actor self(bench_.system());
  self->send(coordinator_, PauseRequest{true});
  bench_.send(coordinator_, Interrupt{});
  bench_.deliver_all();
  self->receive([](const PauseAnswer& answer) { EXPECT_EQ(answer.state, RunState::stopping); });
  EXPECT_EQ(bench_.ask<PauseAnswer>(coordinator_, PauseRequest{true}).state, RunState::stopping);
  finish_step(1);
  write_part(marks_.back(), 0);
  write_part(marks_.back(), 1);
  drain_writer();
  EXPECT_TRUE(finished_);
}

TEST_F(CoordinatorTest, a_paused_run_that_is_interrupted_ends_with_its_checkpoint) {  // RS-3
  start(0, endless());
  bench_.send(coordinator_, PauseRequest{true});
  finish_step(1);
  EXPECT_EQ(marks_.back().kind, StepBoundary::Kind::end_step);
  bench_.send(coordinator_, Interrupt{});
  bench_.send(coordinator_, Interrupt{});
  bench_.deliver_all();
  ASSERT_EQ(marks_.back().kind, StepBoundary::Kind::snapshot);
  write_part(marks_.back(), 0);
  write_part(marks_.back(), 1);
  drain_writer();
  EXPECT_TRUE(finished_);
  EXPECT_EQ(record_->last_step, 1u);
}

TEST_F(CoordinatorTest, a_checkpoint_that_is_asked_for_is_answered_when_it_is_committed_also_while_paused) {  // RS-4
  start(0, endless());
  bench_.send(coordinator_, PauseRequest{true});
  finish_step(1);
  caf::scoped_actor self(bench_.system());
  self->send(coordinator_, CheckpointRequest{});
  self->send(coordinator_, CheckpointRequest{});
  bench_.deliver_all();
  ASSERT_EQ(marks_.back().kind, StepBoundary::Kind::snapshot);
  const std::size_t marks = marks_.size();
  EXPECT_FALSE(self->has_next_message());
  write_part(marks_[marks - 1], 0);
  write_part(marks_[marks - 1], 1);
  drain_writer();
  for (int asked = 0; asked < 2; ++asked) {
    self->receive([&](const CheckpointAnswer& answer) {
      EXPECT_EQ(answer.refusal, "");
      EXPECT_EQ(answer.step, StepId(1));
      EXPECT_EQ(answer.path, snapshots_.store().latest()->string());
    });
  }
  const auto again = bench_.ask<CheckpointAnswer>(coordinator_, CheckpointRequest{});
  EXPECT_EQ(again.path, record_->checkpoint);
  EXPECT_EQ(marks_.size(), marks) << "the step has a checkpoint";
  EXPECT_EQ(bench_.ask<RunStatus>(coordinator_, RunStatusRequest{}).state, RunState::paused);
}

TEST_F(CoordinatorTest, a_checkpoint_that_cannot_be_is_refused_with_the_reason) {
  RunScheduleOptions schedule = endless();
  schedule.keeps_state = false;
  start(0, schedule);
  EXPECT_THAT(bench_.ask<CheckpointAnswer>(coordinator_, CheckpointRequest{}).refusal,
              ::testing::HasSubstr("emulated"));
}

TEST_F(CoordinatorTest, metrics_come_in_pages_and_status_has_the_last_row_of_every_section) {
  start(2, plain(9));
  for (std::uint64_t step = 1; step <= 9; ++step) finish_step(step);
  EXPECT_TRUE(finished_);
  std::vector<std::uint64_t> steps;
  for (MetricsRequest request{0, 0, 4}; request.first_step_row < 18;) {
    const auto page = bench_.ask<MetricsRows>(coordinator_, request);
    ASSERT_EQ(page.next_step_row, std::min<std::int64_t>(request.first_step_row + 4, 18));
    for (const StepRow& row : page.steps) steps.push_back(row.step.value());
    request.first_step_row = page.next_step_row;
  }
  EXPECT_EQ(steps.size(), 18u);
  EXPECT_TRUE(std::ranges::is_sorted(steps));
  EXPECT_EQ(bench_.ask<MetricsRows>(coordinator_, MetricsRequest{-3, 0, 100}).steps.size(), 3u);
  record_->steps.keep(5);
  const auto kept = bench_.ask<MetricsRows>(coordinator_, MetricsRequest{2, 0, 3});
  EXPECT_EQ(kept.first_step_row, 13) << "the rows before have left memory";
  EXPECT_EQ(kept.next_step_row, 16);
  EXPECT_EQ(kept.steps.size(), 3u);
  EXPECT_EQ(bench_.ask<MetricsRows>(coordinator_, MetricsRequest{1000, -1000, 100}).steps.size(), 0u);
  EXPECT_EQ(bench_.ask<MetricsRows>(coordinator_, MetricsRequest{0, 0, -7}).steps.size(), 0u);
  const auto status = bench_.ask<RunStatus>(coordinator_, RunStatusRequest{});
  EXPECT_EQ(status.state, RunState::finished);
  EXPECT_EQ(status.last_step, 9u);
  EXPECT_EQ(status.latest.size(), 2u);
  for (const auto& [section, row] : status.latest) EXPECT_EQ(row.step, StepId(9));
}

}  // namespace
}  // namespace maestro
