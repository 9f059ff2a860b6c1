// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <sstream>

#include "actors/run/planner.hpp"
#include "tests/actors/actor_bench.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

/// A coordinator with a trained replica played by the test: it receives work items and boundaries, and answers on
/// demand.
class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() : console_(ConsoleStreams{terminal_, terminal_, false, {}}) {
    for (const char* name : {"first", "second"}) {
      GraphNode node;
      node.name = name;
      node.micro_batch = 2;
      graph_.add(node);
    }
  }
  ~CoordinatorTest() override { snapshots_.stop(); }

  void start(std::int64_t ahead, const RunScheduleOptions& schedule) {
    CoordinatorOptions options;
    options.graph = &graph_;
    options.schedule = schedule;
    options.ahead = ahead;
    options.global_batch = 2;
    options.record = record_;
    options.snapshots = &snapshots_;
    options.console = &console_;
    options.current_step = &current_step_;
    options.max_left_out = max_left_out_;
    options.epoch_samples = epoch_samples_;
    options.global_clip = global_clip_;
    options.data_source = bench_.stand_in([this](const BatchRequest& request) {
      BatchMetadata batch;
      batch.step = request.step;
      batch.pass = request.pass;
      if (!all_left_out_) batch.samples = {{SampleId(1), 3}, {SampleId(2), 3}};
      batch.target_tokens = all_left_out_ ? 0 : 6;
      batch.left_out = left_out_;
      return batch;
    });
    options.supervisor = bench_.stand_in([this](Finish) { finished_ = true; },
                                         [this](const Failure& failure) { failure_ = failure.message; });
    StepPlannerOptions planning;
    planning.graph = &graph_;
    planning.policy = make_policy("arrival");
    options.planner = bench_.spawn<Planner>(std::move(planning), options.supervisor);
    coordinator_ = bench_.spawn<Coordinator>(std::move(options));
    const caf::actor lane = bench_.stand_in([this](const MicroBatchOrder&) { ++tokens_; },
                                            [this](const BoundaryOrder& token) { marks_.push_back(token.mark); },
                                            [this](const NormTotal& total) { totals_.push_back(total); });
    Directory directory;
    directory.coordinator = coordinator_;
    ProcessInfo hello;
    for (std::uint32_t section = 0; section < 2; ++section) {
      ReplicaAddress address;
      address.section = SectionId(section);
      address.actor = lane;
      hello.replicas.push_back(address);
    }
    directory.processes.push_back(hello);
    bench_.send(coordinator_, directory);
    if (begins_) bench_.send(coordinator_, Begin{});
    bench_.deliver_all();
  }
  void finish_step(std::uint64_t step) {
    for (std::uint32_t section = 0; section < 2; ++section) finish_step(step, section);
  }
  void finish_step(std::uint64_t step, std::uint32_t section) {
    bench_.send(coordinator_, StepDone{SectionId(section), ReplicaIndex(0), StepId(step), Pass::train, 1.0, 0.1});
    bench_.deliver_all();
  }
  void write_part(const StepBoundary& mark, std::uint32_t section) {
    SectionState state;
    state.config = "{}";
    const auto files = snapshots_.store().write_section(mark.staging, graph_.nodes()[section].name, state);
    ASSERT_TRUE(files) << files.error().message;
    SnapshotWritten written{SectionId(section), mark.step, {}};
    for (const FileRecord& file : *files) written.files.push_back({file.path, file.bytes, file.checksum});
    bench_.send(coordinator_, written);
    bench_.deliver_all();
  }
  /// Waits until the writer has done all its work, then delivers its reports.
  void drain_writer() {
    std::promise<void> drained;
    snapshots_.run([&drained] { return [&drained] { drained.set_value(); }; }, {});
    drained.get_future().wait();
    bench_.deliver_all();
  }
  [[nodiscard]] std::uint64_t announced() const { return marks_.size() / 2; }

  TempFolder folder_;
  SectionGraph graph_;
  std::shared_ptr<RunRecord> record_ = std::make_shared<RunRecord>();
  std::ostringstream terminal_;
  Console console_;
  std::atomic<std::uint64_t> current_step_ = 0;
  bool finished_ = false;
  std::string failure_;
  std::vector<std::string> left_out_;  // of every batch
  std::int64_t max_left_out_ = 0;
  bool all_left_out_ = false;  // no batch has a sample
  std::uint64_t epoch_samples_ = 1;
  bool global_clip_ = false;
  bool begins_ = true;
  std::size_t tokens_ = 0;
  std::vector<StepBoundary> marks_;
  std::vector<NormTotal> totals_;
  testing::ActorBench bench_;
  SnapshotWriter snapshots_{CheckpointStore(folder_.path() / "checkpoints")};  // before the actors it sends to
  caf::actor coordinator_;
};

RunScheduleOptions plain(std::uint64_t steps) {
  RunScheduleOptions options;
  options.steps = steps;
  options.validate_at_end = false;
  options.checkpoint_at_end = false;
  return options;
}

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
  EXPECT_EQ(totals_[0].sum_of_squares, 1.0);  // in order of arrival the 1 would be lost
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

TEST_F(CoordinatorTest, an_interrupt_ends_the_run_after_what_was_announced) {  // RS-2
  start(1, plain(100));
  EXPECT_EQ(announced(), 2u);
  bench_.send(coordinator_, Interrupt{});
  bench_.deliver_all();
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
  EXPECT_EQ(bench_.ask<MetricsRows>(coordinator_, MetricsRequest{1000, -1000, 100}).steps.size(), 0u);
  EXPECT_EQ(bench_.ask<MetricsRows>(coordinator_, MetricsRequest{0, 0, -7}).steps.size(), 0u);
  const auto status = bench_.ask<RunStatus>(coordinator_, RunStatusRequest{});
  EXPECT_EQ(status.state, RunState::finished);
  EXPECT_EQ(status.last_step, 9u);
  EXPECT_EQ(status.latest.size(), 2u);
  for (const auto& [section, row] : status.latest) EXPECT_EQ(row.step, StepId(9));
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

TEST_F(CoordinatorTest, more_unreadable_samples_than_allowed_end_the_run_with_the_list) {
  left_out_ = {"sample 'a': a.png is truncated", "sample 'b': b.png is truncated"};
  max_left_out_ = 1;
  start(1, plain(3));
  EXPECT_EQ(failure_,
            "2 samples cannot be read and data.max_bad_samples = 1: sample 'a': a.png is truncated; sample 'b': b.png "
            "is truncated");
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
  epoch_samples_ = 5;  // steps of 2
  start(1, plain(1000));
  for (std::uint64_t step = 1; step <= 2; ++step) finish_step(step);
  EXPECT_EQ(failure_.rfind("step 3: every training sample so far was left out", 0), 0u) << failure_;
}

}  // namespace
}  // namespace maestro
