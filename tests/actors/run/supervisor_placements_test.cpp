// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/actors/run/placements_bench.hpp"

namespace maestro {
namespace {

using namespace testing;  // NOLINT: the bench is a vocabulary

TEST_F(MovesOfPlacements, let_the_run_go_on_without_a_process_of_placements) {  // SV-8
  start();
  kill(2);
  for (const std::uint32_t rank : {0u, 1u, 3u}) EXPECT_FALSE(ended(rank)) << rank;
  EXPECT_EQ(removed_, (std::vector<std::uint32_t>{2, 2, 2}));
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0],
            "lost process 2 (pid 102, section 'teacher' replica 1) in step 4: it died, or was silent for too long; "
            "process 1 takes section 'teacher' replica 1");
  EXPECT_EQ(times("text0@0 retires"), 1);
  EXPECT_EQ(times("teacher0@1 retires"), 1);
  EXPECT_EQ(times("student0@3 renews for 41"), 1);
  EXPECT_EQ(times("student0@3 goes on"), 1);
  EXPECT_EQ(times("teacher1@1 begins"), 1);
  ASSERT_TRUE(moved_);
  EXPECT_EQ(moved_->arrivals.size(), 1u);
  EXPECT_EQ(placements(), (std::vector<Placement>{placement(text, 0, 0), placement(teacher, 0, 1),
                                                  placement(teacher, 1, 1), placement(student, 0, 3)}));
}

TEST_F(MovesOfPlacements, end_with_the_last_process_of_the_section) {  // SV-8
  start();
  kill(2);
  kill(1);
  settle();
  EXPECT_EQ(lines_.size(), 1u);
}

TEST_F(MovesOfPlacements, do_not_happen_for_a_process_with_a_trained_section) {  // SV-8
  start();
  kill(3);
  settle();
  EXPECT_TRUE(lines_.empty());
}

TEST_F(MovesOfPlacements, happen_at_most_as_often_as_the_job_allows) {
  most_ = 0;
  start();
  kill(2);
  bench_.send(supervisors_[0], LossSettled{});
  bench_.deliver_all();
  EXPECT_TRUE(ended(0));
  EXPECT_TRUE(lines_.empty());
}

TEST_F(MovesOfPlacements, end_the_start_of_the_run_when_a_process_does_not_answer) {  // SV-8
  silent_ = true;
  start();
  kill(2);
  EXPECT_FALSE(ended(0));
  bench_.advance(std::chrono::seconds(5));
  ASSERT_TRUE(ended(0));
  EXPECT_TRUE(ends_[0].get().recoverable);
  EXPECT_NE(ends_[0].get().error.find("placements have not moved in time"), std::string::npos) << ends_[0].get().error;
}

TEST_F(MovesOfPlacements, end_the_start_of_the_run_at_a_loss_before_the_placements_have_moved) {  // SV-8
  silent_ = true;
  start();
  kill(2);
  kill(1);
  settle();
}

TEST_F(MovesOfPlacements, explain_failed_transfers_of_the_replicas_that_were_there_before) {  // SV-7
  start();
  caf::anon_send_exit(supervisors_[2], caf::exit_reason::kill);
  caf::scoped_actor other(bench_.system());
  caf::send_as(replicas_[1], supervisors_[1], TransferBroken{"section 'teacher' replica 0: cannot write"});
  bench_.deliver_all();
  bench_.advance(std::chrono::seconds(4));
  EXPECT_FALSE(ended(1));
  caf::send_as(replicas_[3], supervisors_[3], TransferBroken{"section 'student' replica 0: cannot write"});
  bench_.deliver_all();
  bench_.advance(std::chrono::seconds(4));
  EXPECT_TRUE(ended(3));
}

TEST_F(MovesOfPlacements, explain_a_broken_transport_as_a_further_loss) {  // EP-5
  start();
  kill(2);
  bench_.send(supervisors_[3], Failure{"transport: a lock is held", true});
  bench_.deliver_all();
  ASSERT_TRUE(ended(0));
  EXPECT_TRUE(ends_[0].get().recoverable);
}

class Replacements : public MovesOfPlacements {
 protected:
  Replacements() { starts_ = true; }
};

TEST_F(Replacements, take_the_placements_back_that_others_took) {  // SV-9
  start();
  kill(2);
  EXPECT_EQ(started_, std::vector<std::uint32_t>{2});
  moved_.reset();
  come(2);
  ASSERT_TRUE(moved_);
  EXPECT_EQ(moved_->reason, "recovered: process 2 has rejoined");
  EXPECT_EQ(placements(), (std::vector<Placement>{placement(text, 0, 0), placement(teacher, 0, 1),
                                                  placement(teacher, 1, 2), placement(student, 0, 3)}));
  EXPECT_EQ(placed_, std::vector<std::uint32_t>{2});
  EXPECT_EQ(times("teacher1@1 retires"), 1);
  bench_.advance(std::chrono::seconds(100));  // beyond the time limits of a start, which do not apply
  for (const std::uint32_t rank : {0u, 1u, 3u}) EXPECT_FALSE(ended(rank)) << rank;
}

TEST_F(Replacements, may_be_lost_and_come_again) {  // SV-9
  start();
  for (int round = 0; round < 3; ++round) {
    kill(2);
    come(2);
  }
  EXPECT_EQ(placed_, (std::vector<std::uint32_t>{2, 2, 2}));
  EXPECT_EQ(lines_.size(), 3u);
  EXPECT_FALSE(ended(0));
}

TEST_F(Replacements, that_fail_leave_the_placements_where_they_are) {  // SV-9
  start();
  kill(2);
  bench_.send(supervisors_[0], ReplacementFailed{ProcessId(2), "it ended with exit status 1"});
  bench_.deliver_all();
  EXPECT_FALSE(ended(0));
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[1],
            "process 2 did not start again: it ended with exit status 1; other processes keep its placements");
}

TEST_F(Replacements, come_one_after_the_other) {  // SV-9
  start();
  kill(2);
  bench_.send(supervisors_[0], ChildEnded{ProcessId(2), "signal 9", false});
  bench_.deliver_all();
  EXPECT_EQ(lines_.size(), 1u) << "the end of the lost process is no end of its replacement";
  come(2);
  kill(1);
  EXPECT_EQ(started_, (std::vector<std::uint32_t>{2, 1}));
  come(1);
  EXPECT_EQ(placed_, (std::vector<std::uint32_t>{2, 1}));
  EXPECT_EQ(placements(), (std::vector<Placement>{placement(text, 0, 0), placement(teacher, 0, 1),
                                                  placement(teacher, 1, 2), placement(student, 0, 3)}));
}

/// Process 2 is without sections, so only process 1 has the teacher.
class OnlyTeacher : public Replacements {
 protected:
  bool idle(std::uint32_t rank) const override { return rank == 2; }
};

TEST_F(OnlyTeacher, is_waited_for_while_transfers_to_it_fail) {  // SV-7, SV-9
  start();
  kill(1);
  EXPECT_FALSE(ended(0));
  EXPECT_FALSE(moved_);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0],
            "lost process 1 (pid 101, section 'teacher' replica 0) in step 4: it died, or was silent for too long; "
            "starting it again");
  caf::send_as(replicas_[0], supervisors_[0], TransferBroken{"section 'text' replica 0: cannot write"});
  bench_.deliver_all();
  bench_.advance(std::chrono::seconds(20));
  EXPECT_FALSE(ended(0));
  come(1);
  ASSERT_TRUE(moved_);
  bench_.advance(std::chrono::seconds(20));
  EXPECT_FALSE(ended(0)) << "its replicas began anew";
}

TEST_F(OnlyTeacher, that_does_not_come_takes_the_run_back) {  // SV-9
  start();
  kill(1);
  bench_.send(supervisors_[0], ReplacementFailed{ProcessId(1), "no memory"});
  bench_.deliver_all();
  ASSERT_TRUE(ended(0));
  EXPECT_TRUE(ends_[0].get().recoverable);
  EXPECT_EQ(ends_[0].get().error, "process 1 did not start again: no memory");
}

TEST_F(OnlyTeacher, of_two_processes_hears_rank_0_when_it_comes_again) {  // SV-2, SV-9
  processes_ = 2;
  start();
  const auto beat = PeerWatch::interval_of(SupervisorOptions().peer_timeout);
  kill(1);
  for (int beats = 0; beats < 20; ++beats) bench_.advance(beat);
  come(1);
  for (int beats = 0; beats < 20; ++beats) bench_.advance(beat);
  EXPECT_FALSE(ended(0));
  EXPECT_FALSE(ended(2)) << "the replacement";
}

TEST_F(OnlyTeacher, and_a_further_loss_take_the_run_back) {  // SV-9
  start();
  kill(1);
  kill(2);
  settle();
}

}  // namespace
}  // namespace maestro
