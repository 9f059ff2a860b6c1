// SPDX-License-Identifier: Apache-2.0
// The checkpoint that the coordinator makes from the survivors' state after a process is lost (CR-6).
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/actors/run/coordinator_bench.hpp"

namespace maestro {
namespace {

class CoordinatorRescue : public CoordinatorTest {
 protected:
  /// Finishes `steps` steps; the replicas have the state after the last.
  void train(std::uint64_t steps, RunScheduleOptions schedule = plain(1'000'000)) {
    start(1, schedule);
    for (std::uint64_t step = 1; step <= steps; ++step) finish_step(step);
    settled_ = {StepId(steps), StepId(steps)};
  }
  void end_passes(std::uint64_t step, std::uint32_t section) {
    MicroBatchDone done;
    done.section = SectionId(section);
    done.step = StepId(step);
    bench_.send(coordinator_, done);
  }
  /// Checks that the checkpoint of step 1 is written, with `section` recorded as ahead by one step.
  void expect_written_with_ahead(const std::string& section) {
    ASSERT_EQ(snapshots(), 2u);
    const StepBoundary mark = marks_.back();
    EXPECT_EQ(mark.step, StepId(1));
    write_part(mark, 0);
    write_part(mark, 1);
    drain_writer();
    EXPECT_EQ(load_manifest(record_->newest)->ahead, (std::map<std::string, std::uint64_t>{{section, 2}}));
  }
  void lose(std::uint32_t process) {
    self_->send(coordinator_, Rescue{ProcessId(process)});
    bench_.deliver_all();
  }
  [[nodiscard]] bool answered() {
    bool answer = false;
    while (self_->has_next_message()) self_->receive([&](Rescued) { answer = true; });
    return answer;
  }
  [[nodiscard]] std::size_t snapshots() const {
    return static_cast<std::size_t>(std::ranges::count(marks_, StepBoundary::Kind::snapshot, &StepBoundary::kind));
  }

  caf::scoped_actor self_{bench_.system()};
};

TEST_F(CoordinatorRescue, state_of_the_last_finished_step_is_written_and_nothing_announced) {
  train(3);
  const std::uint64_t before = announced();
  lose(1);
  ASSERT_EQ(snapshots(), 2u);
  EXPECT_FALSE(answered()) << "the checkpoint is not there yet";
  const StepBoundary mark = marks_.back();
  EXPECT_EQ(mark.step, StepId(3));
  write_part(mark, 0);
  write_part(mark, 1);
  finish_step(4);  // a report sent before the loss
  drain_writer();
  EXPECT_TRUE(answered());
  EXPECT_NE(record_->newest.find("step-00000003"), std::string::npos) << record_->newest;
  EXPECT_EQ(announced(), before + 1) << "a mark for each section of the checkpoint alone";
  EXPECT_EQ(failure_, "");
}

TEST_F(CoordinatorRescue, a_section_all_of_which_is_lost_leaves_nothing_to_write) {
  train(3);
  lose(0);  // process 0 has both replicas
  EXPECT_TRUE(answered());
  EXPECT_EQ(snapshots(), 0u);
}

TEST_F(CoordinatorRescue, a_replica_that_is_a_step_ahead_or_has_a_shard_alone_cannot_write) {
  train(3);
  settled_[1] = StepId(4);
  lose(1);
  EXPECT_TRUE(answered());
  EXPECT_EQ(snapshots(), 0u);
}

TEST_F(CoordinatorRescue, a_section_may_be_ahead_by_steps_that_are_recorded) {
  start(2, plain(1'000'000));
  finish_step(1);
  finish_step(2, 1);
  settled_ = {StepId(1), StepId(2)};
  lose(1);
  expect_written_with_ahead("second");
}

TEST_F(CoordinatorRescue, a_step_that_lacks_the_reports_of_the_lost_process_alone_is_finished) {
  second_process_ = true;
  start(1, plain(1'000'000));
  settled_ = {StepId(1), StepId(1)};
  for (std::uint32_t section = 0; section < 2; ++section) end_passes(1, section);
  finish_step(1);
  EXPECT_EQ(record_->last_step, 0u) << "the replica of process 1 has not reported";
  lose(1);
  EXPECT_EQ(record_->last_step, 1u);
  EXPECT_EQ(marks_.back().kind, StepBoundary::Kind::snapshot);
  EXPECT_EQ(marks_.back().step, StepId(1));
}

TEST_F(CoordinatorRescue, a_section_is_ahead_by_a_step_that_lacks_the_reports_of_the_lost_process_alone) {
  second_process_ = true;
  start(2, plain(1'000'000));
  for (std::uint32_t section = 0; section < 2; ++section) end_passes(1, section);
  finish_step(1);
  bench_.send(coordinator_, StepDone{SectionId(0), ReplicaIndex(1), StepId(1), Pass::train, 1.0, 0.1});
  end_passes(2, 0);
  finish_step(2, 0);
  settled_ = {StepId(2), StepId(1)};
  lose(1);
  EXPECT_EQ(record_->last_step, 1u);
  EXPECT_EQ(record_->unfinished.at(2).size(), 1u) << "the row of the first section";
  expect_written_with_ahead("first");
}

TEST_F(CoordinatorRescue, a_step_whose_passes_on_the_lost_process_were_not_reported_is_not_finished) {
  second_process_ = true;
  start(1, plain(1'000'000));
  settled_ = {StepId(1), StepId(1)};
  end_passes(1, 1);
  finish_step(1);
  lose(1);
  EXPECT_EQ(record_->last_step, 0u);
  EXPECT_EQ(snapshots(), 0u);
}

TEST_F(CoordinatorRescue, sharded_state_cannot_be_written) {
  train(3);
  whole_ = false;
  lose(1);
  EXPECT_TRUE(answered());
  EXPECT_EQ(snapshots(), 0u);
}

TEST_F(CoordinatorRescue, what_a_step_still_owes_is_done_first) {
  RunScheduleOptions schedule = plain(1'000'000);
  schedule.checkpoint_every = 3;
  with_shadows_ = true;
  train(3, schedule);
  ASSERT_EQ(snapshots(), 2u);
  lose(1);
  ASSERT_EQ(snapshots(), 4u);
  const StepBoundary mark = marks_.back();
  EXPECT_TRUE(mark.shadow);
  write_part(mark, 0);
  write_part(mark, 1);
  drain_writer();
  EXPECT_TRUE(answered());
  ASSERT_TRUE(record_->owed && record_->owed->size() == 1);
  EXPECT_EQ(record_->owed->front().kind, RunUnit::Kind::checkpoint);
  EXPECT_EQ(record_->owed->front().step, StepId(3));
}

TEST_F(CoordinatorRescue, an_ordinary_checkpoint_that_ends_meanwhile_names_no_section_ahead) {
  RunScheduleOptions schedule = plain(1'000'000);
  schedule.checkpoint_every = 3;
  with_shadows_ = true;
  start(2, schedule);
  for (std::uint64_t step = 1; step <= 3; ++step) finish_step(step);
  finish_step(4, 1);
  settled_ = {StepId(3), StepId(4)};
  const StepBoundary ordinary = *std::ranges::find(marks_, StepBoundary::Kind::snapshot, &StepBoundary::kind);
  lose(1);
  const StepBoundary rescue = marks_.back();
  ASSERT_TRUE(rescue.shadow);
  for (const StepBoundary& mark : {rescue, ordinary}) {
    write_part(mark, 0);
    write_part(mark, 1);
    drain_writer();
  }
  EXPECT_TRUE(load_manifest(record_->checkpoint)->ahead.empty()) << "its parts are all of step 3";
  EXPECT_EQ(load_manifest(record_->newest)->ahead.at("second"), 4u);
  EXPECT_NE(record_->newest.find("shadows"), std::string::npos) << "what came later is not newer";
  EXPECT_TRUE(record_->owed.has_value());
}

TEST_F(CoordinatorRescue, a_checkpoint_of_the_same_step_that_is_under_way_is_left_alone) {
  RunScheduleOptions schedule = plain(1'000'000);
  schedule.checkpoint_every = 3;
  train(3, schedule);
  const std::size_t under_way = snapshots();
  lose(1);
  EXPECT_TRUE(answered());
  EXPECT_EQ(snapshots(), under_way);
}

TEST_F(CoordinatorRescue, a_run_that_stops_or_has_not_begun_is_not_rescued) {
  begins_ = false;
  start(1, plain(10));
  lose(1);
  EXPECT_TRUE(answered());
  bench_.send(coordinator_, Begin{});
  bench_.send(coordinator_, Interrupt{});
  bench_.deliver_all();
  const std::size_t in_order = snapshots();
  lose(1);
  EXPECT_TRUE(answered());
  EXPECT_EQ(snapshots(), in_order);
}

TEST_F(CoordinatorRescue, a_step_that_has_its_checkpoint_is_not_written_again) {
  RunScheduleOptions schedule = plain(1'000'000);
  schedule.checkpoint_every = 3;
  train(3, schedule);
  const StepBoundary mark = *std::ranges::find(marks_, StepBoundary::Kind::snapshot, &StepBoundary::kind);
  write_part(mark, 0);
  write_part(mark, 1);
  drain_writer();
  const std::size_t written = snapshots();
  lose(1);
  EXPECT_TRUE(answered());
  EXPECT_EQ(snapshots(), written);
}

}  // namespace
}  // namespace maestro
