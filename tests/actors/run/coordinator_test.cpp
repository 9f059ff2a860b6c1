// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/coordinator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/actors/run/coordinator_bench.hpp"

namespace maestro {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CoordinatorTest, at_most_ahead_steps_are_announced_beyond_the_oldest_unfinished_one) {  // CR-2
  start(2, plain(6));
  EXPECT_EQ(announced(), 3u);
  EXPECT_EQ(tokens_, 6u);
  finish_step(1, 0);
  EXPECT_EQ(announced(), 3u) << "step 1 is finished when every section is";
  finish_step(1, 1);
  EXPECT_EQ(announced(), 4u);
  finish_step(2);
  finish_step(3);
  EXPECT_EQ(announced(), 6u);
  EXPECT_FALSE(finished_);
  for (std::uint64_t step = 4; step <= 6; ++step) finish_step(step);
  EXPECT_TRUE(finished_);
  EXPECT_EQ(record_->last_step, 6u);
  for (std::size_t at = 0; at < marks_.size(); ++at) EXPECT_EQ(marks_[at].step, StepId(at / 2 + 1));  // CR-1
}

TEST_F(CoordinatorTest, replicas_that_report_a_part_each_are_answered_when_all_have_and_added_in_their_order) {
  start(1, plain(1));
  const auto report = [this](std::uint32_t replica, double part) {
    bench_.send(coordinator_, NormReport{SectionId(1), ReplicaIndex(replica), 3, StepId(1), part});
    bench_.deliver_all();
  };
  report(2, 1.0);
  report(0, 1e17);
  EXPECT_TRUE(totals_.empty());
  report(1, -1e17);
  ASSERT_EQ(totals_.size(), 1u);
  EXPECT_EQ(totals_[0].sum_of_squares, 1.0);  // added in order of arrival, the 1 would be lost
  EXPECT_EQ(totals_[0].sum_of_squares_of_section, 1.0);
}

TEST_F(CoordinatorTest, one_norm_over_all_sections_waits_for_every_part_of_each) {
  global_clip_ = true;
  start(1, plain(1));
  const auto report = [this](std::uint32_t section, std::uint32_t replica, std::uint32_t reporters) {
    const double part = section == 0 ? 5.0 : 1.0 + replica;
    bench_.send(coordinator_, NormReport{SectionId(section), ReplicaIndex(replica), reporters, StepId(1), part});
    bench_.deliver_all();
  };
  report(1, 0, 2);
  report(0, 0, 1);
  EXPECT_TRUE(totals_.empty());
  report(1, 1, 2);
  ASSERT_EQ(totals_.size(), 2u);
  for (const NormTotal& total : totals_) EXPECT_EQ(total.sum_of_squares, 8.0);
  EXPECT_EQ(totals_[0].sum_of_squares_of_section, 5.0);
  EXPECT_EQ(totals_[1].sum_of_squares_of_section, 3.0);
}

TEST_F(CoordinatorTest, no_section_trains_on_a_step_with_a_norm_that_is_not_finite) {
  GuardConfig skipping;
  skipping.action = GuardAction::skip;
  skipping.patience = 2;
  guard_.emplace(skipping);
  start(3, plain(3));
  const auto report = [this](std::uint64_t step, double of_first) {
    totals_.clear();
    for (std::uint32_t section = 0; section < 2; ++section) {
      EXPECT_TRUE(totals_.empty()) << "the other section has not reported";
      const double part = section == 0 ? of_first : 4.0;
      bench_.send(coordinator_, NormReport{SectionId(section), ReplicaIndex(0), 1, StepId(step), part});
      bench_.deliver_all();
    }
    finish_step(step);
  };
  const auto skipped = [this] { return totals_.size() == 2 && totals_[0].skipped && totals_[1].skipped; };
  report(1, 9.0);
  ASSERT_EQ(totals_.size(), 2u);
  EXPECT_FALSE(totals_[0].skipped || totals_[1].skipped);
  EXPECT_EQ(totals_[0].sum_of_squares, 9.0) << "each section is clipped by its own norm";
  EXPECT_EQ(totals_[1].sum_of_squares, 4.0);
  report(2, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(skipped());
  EXPECT_EQ(failure_, "");
  EXPECT_THAT(terminal_.str(), HasSubstr("step 2 is skipped: the gradient norm of section 'first' is nan"));
  const auto& rows = record_->steps.kept();
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_FALSE(rows[1].metrics.contains("skipped"));
  EXPECT_TRUE(rows[1].metrics.contains("lr"));
  for (const std::size_t at : {2u, 3u}) {
    EXPECT_EQ(rows[at].metrics.at("skipped"), 1);
    EXPECT_FALSE(rows[at].metrics.contains("lr"));
  }
  report(3, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(skipped());
  EXPECT_THAT(failure_, HasSubstr("guard.patience = 2 steps in a row were skipped: lower lr"));
}

TEST_F(CoordinatorTest, an_interrupt_ends_the_run_after_what_was_announced) {  // RS-2
  start(1, plain(100));
  EXPECT_EQ(announced(), 2u);
  bench_.send(coordinator_, Interrupt{"SIGTERM"});
  bench_.send(coordinator_, Interrupt{});
  bench_.deliver_all();
  EXPECT_EQ(terminal_.str(), "SIGTERM: stopping after step 2, with a checkpoint (Ctrl-C again to leave at once)\n");
  EXPECT_EQ(bench_.ask<RunStatus>(coordinator_, RunStatusRequest{}).stops_after, 2u);
  EXPECT_EQ(bench_.ask<RunStatus>(coordinator_, RunStatusRequest{}).last_step, 0u);
  finish_step(1);
  ASSERT_EQ(marks_.size(), 6u);
  EXPECT_EQ(marks_.back().kind, StepBoundary::Kind::snapshot);
  EXPECT_EQ(marks_.back().step, StepId(2));
  finish_step(2);
  EXPECT_FALSE(finished_) << "the checkpoint is not written yet";
  write_part(marks_.back(), 0);
  write_part(marks_.back(), 1);
  drain_writer();
  EXPECT_TRUE(finished_);
  EXPECT_TRUE(record_->interrupted);
  EXPECT_EQ(record_->last_step, 2u);
}

TEST_F(CoordinatorTest, a_run_with_a_generator_begins_with_its_weights_and_drops_samples_of_closed_steps) {
  add_generator();
  made_until_ = 100;
  start(1, plain(2));
  EXPECT_EQ(directories_, 1U);
  ASSERT_FALSE(marks_.empty());
  EXPECT_EQ(marks_[0].kind, StepBoundary::Kind::publish);
  EXPECT_EQ(marks_[0].step, StepId(0)) << "the values before step 1";
  EXPECT_EQ(marks_.size(), 5U) << "two lanes get the ends of two steps, and the generator none";
  finish_step(1);
  EXPECT_EQ(closed_, (std::vector<std::uint64_t>{1}));
  finish_step(2);
  EXPECT_EQ(closed_, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_TRUE(finished_);
}

TEST_F(CoordinatorTest, an_interrupt_withdraws_a_step_whose_samples_are_still_made) {  // RS-2
  add_generator();
  made_until_ = 2;
  start(3, plain(100));
  const auto status = bench_.ask<RunStatus>(coordinator_, RunStatusRequest{});
  EXPECT_EQ(status.units.size(), 3U);
  EXPECT_EQ(status.waiting, "process 0 waits for samples of section 'generator'");
  EXPECT_EQ(status.working, "") << "a sample that is lost must not look like work";
  bench_.send(coordinator_, Interrupt{});
  bench_.deliver_all();
  EXPECT_EQ(withdrawn_, (std::vector<std::uint64_t>{3}));
  EXPECT_THAT(terminal_.str(), HasSubstr("stopping after step 2, with a checkpoint"));
  BatchMetadata late;
  late.step = StepId(3);
  late.samples = {{SampleId(1), 3}};
  late.target_tokens = 3;
  bench_.send(coordinator_, late);
  bench_.deliver_all();
  finish_step(1);
  finish_step(2);
  write_part(marks_.back(), 0);
  write_part(marks_.back(), 1);
  drain_writer();
  EXPECT_TRUE(finished_);
  EXPECT_EQ(record_->last_step, 2U);
  EXPECT_EQ(failure_, "");
}

TEST_F(CoordinatorTest, an_interrupt_after_the_last_step_has_nothing_to_end) {
  start(1, plain(1));
  finish_step(1);
  ASSERT_TRUE(finished_);
  bench_.send(coordinator_, Interrupt{});
  bench_.deliver_all();
  EXPECT_FALSE(record_->interrupted);
  EXPECT_THAT(terminal_.str(), Not(HasSubstr("stopping")));
}

TEST_F(CoordinatorTest, a_checkpoint_is_committed_only_with_the_parts_of_all_trained_sections) {  // CR-3
  RunScheduleOptions schedule = plain(1);
  schedule.checkpoint_at_end = true;
  start(2, schedule);
  ASSERT_EQ(marks_.size(), 4u);
  const StepBoundary snapshot = marks_.back();
  ASSERT_EQ(snapshot.kind, StepBoundary::Kind::snapshot);
  finish_step(1);
  write_part(snapshot, 0);
  drain_writer();
  EXPECT_FALSE(snapshots_.store().latest());
  EXPECT_FALSE(finished_);
  write_part(snapshot, 1);
  drain_writer();
  EXPECT_EQ(failure_, "");
  const auto latest = snapshots_.store().latest();
  ASSERT_TRUE(latest) << latest.error().message;
  EXPECT_TRUE(finished_);
  EXPECT_EQ(record_->checkpoint, latest->string());
  EXPECT_EQ(load_manifest(*latest)->sections(), (std::vector<std::string>{"first", "second"}));
}

TEST_F(CoordinatorTest, a_checkpoint_that_cannot_begin_is_a_failure_that_names_its_step) {
  folder_.write("checkpoints", "a file where the folder should be");
  RunScheduleOptions schedule = plain(1);
  schedule.checkpoint_at_end = true;
  start(2, schedule);
  EXPECT_EQ(failure_.rfind("checkpoint of step 1: ", 0), 0u) << failure_;
}

TEST_F(CoordinatorTest, a_sample_that_cannot_be_read_counts_once_however_often_it_comes) {
  left_out_ = {"chats.json: sample 'a': a.png is truncated"};
  max_left_out_ = 1;
  start(1, plain(3));
  for (std::uint64_t step = 1; step <= 3; ++step) finish_step(step);
  EXPECT_TRUE(finished_);
  EXPECT_EQ(failure_, "");
  EXPECT_EQ(record_->left_out, left_out_);
}

TEST_F(CoordinatorTest, more_unreadable_samples_than_allowed_end_the_run_with_the_first) {
  left_out_ = {"sample 'a': a.png is truncated", "sample 'b': b.png is truncated"};
  max_left_out_ = 1;
  start(1, plain(3));
  EXPECT_EQ(failure_,
            "2 samples cannot be read and data.max_bad_samples = 1: sample 'a': a.png is truncated; and 1 more");
  EXPECT_EQ(tokens_, 0u);
}

TEST_F(CoordinatorTest, a_run_that_leaves_out_all_of_its_samples_fails_before_anything_is_kept) {
  left_out_ = {"sample 'a': a.png is truncated"};
  max_left_out_ = 1000;
  all_left_out_ = true;
  epoch_samples_ = 1000;
  RunScheduleOptions schedule = plain(2);
  schedule.checkpoint_at_end = true;
  start(1, schedule);
  finish_step(1);
  EXPECT_EQ(
      failure_,
      "step 2: every training sample so far was left out, so there is nothing to train on; the first: sample 'a': "
      "a.png is truncated");
  EXPECT_FALSE(finished_);
  EXPECT_TRUE(record_->checkpoint.empty());
}

TEST_F(CoordinatorTest, a_long_run_that_leaves_out_a_whole_epoch_fails_after_it) {
  left_out_ = {"sample 'a': a.png is truncated"};
  max_left_out_ = 1000;
  all_left_out_ = true;
  epoch_samples_ = 5;  // steps with 2 samples
  start(1, plain(1000));
  for (std::uint64_t step = 1; step <= 2; ++step) finish_step(step);
  EXPECT_EQ(failure_.rfind("step 3: every training sample so far was left out", 0), 0u) << failure_;
}

}  // namespace
}  // namespace maestro
