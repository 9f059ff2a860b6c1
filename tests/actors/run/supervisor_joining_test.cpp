// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/actors/run/placements_bench.hpp"

namespace maestro {
namespace {

using namespace testing;  // NOLINT: the bench is a vocabulary

/// Processes 1 and 2 have two replicas of the teacher each; processes 4 and 5 may join.
class JoiningProcesses : public MovesOfPlacements {
 protected:
  JoiningProcesses() {
    graph_ = testing::distillation_graph(4, 2);
    joining_ = 2;
  }
  LocalActors local(std::uint32_t rank) override {
    LocalActors local = MovesOfPlacements::local(rank);
    if (rank != 1 && rank != 2) return local;
    const std::uint32_t index = rank + 1;  // 2 on process 1, 3 on process 2
    replicas_.push_back(replica(teacher, index, rank));
    placements_of_[rank].push_back(placement(teacher, index, rank));
    local.info.replicas.push_back({teacher, ReplicaIndex(index), ProcessId(rank), replicas_.back(), {}, {}});
    return local;
  }
  PlacementAnswer ask(const auto& wanted) {
    std::optional<PlacementAnswer> answer;
    const caf::actor asker = bench_.stand_in([&](const PlacementAnswer& given) { answer = given; });
    caf::send_as(asker, supervisors_[0], wanted);
    bench_.deliver_all();
    return answer.value();
  }
  std::string refusal(const auto& wanted) { return ask(wanted).refusal; }
  void join() {
    const PlacementAnswer answer = ask(JoinWanted{"teacher"});
    ASSERT_EQ(answer.refusal, "");
    ASSERT_EQ(answer.process, ProcessId(4));
    come(4);
  }
};

TEST_F(JoiningProcesses, take_a_fair_share_of_the_placements) {  // SV-10
  start();
  join();
  ASSERT_TRUE(moved_);
  EXPECT_EQ(moved_->reason, "process 4 takes section 'teacher' replica 2");
  EXPECT_EQ(placements(),
            (std::vector<Placement>{placement(text, 0, 0), placement(teacher, 0, 1), placement(teacher, 1, 2),
                                    placement(teacher, 2, 4), placement(teacher, 3, 2), placement(student, 0, 3)}));
  EXPECT_EQ(times("teacher2@1 retires"), 1);
  EXPECT_EQ(times("teacher2@4 begins"), 1);
  EXPECT_EQ(times("student0@3 goes on"), 1);
  EXPECT_EQ(placed_, std::vector<std::uint32_t>{4});
  bench_.advance(std::chrono::seconds(100));  // longer than the time limits of a start
  EXPECT_FALSE(ended(0));
  EXPECT_TRUE(lines_.empty()) << "nothing was lost";
}

TEST_F(JoiningProcesses, that_have_no_placement_by_the_end_of_the_run_do_not_hold_it_up) {  // SV-10
  start();
  ASSERT_EQ(ask(JoinWanted{"teacher"}).refusal, "");
  supervisors_.push_back(spawn(4));
  bench_.send(supervisors_[4], JoinRoot{supervisors_[0]});
  bench_.deliver_all();
  bench_.send(supervisors_[0], Finish{});
  bench_.deliver_all();
  ASSERT_TRUE(ended(0));
  EXPECT_TRUE(ends_[0].get().ok);
  EXPECT_EQ(ends_[0].get().processes.size(), 4U);
}

TEST_F(JoiningProcesses, leave_without_being_killed_and_end_in_order) {  // SV-10
  start();
  join();
  const PlacementAnswer answer = ask(LeaveWanted{ProcessId(4)});
  EXPECT_EQ(answer.refusal, "");
  EXPECT_EQ(answer.text, "process 1 takes section 'teacher' replica 2");
  EXPECT_TRUE(removed_.empty());
  EXPECT_EQ(left_, (std::vector<std::uint32_t>{4, 4, 4, 4})) << "of each of the others";
  EXPECT_EQ(times("teacher2@4 retires"), 1);
  ASSERT_TRUE(ended(4));
  EXPECT_TRUE(ends_[4].get().ok);
  EXPECT_TRUE(ends_[4].get().left);
  EXPECT_EQ(placements(),
            (std::vector<Placement>{placement(text, 0, 0), placement(teacher, 0, 1), placement(teacher, 1, 2),
                                    placement(teacher, 2, 1), placement(teacher, 3, 2), placement(student, 0, 3)}));
  kill(4);  // not a loss: the process has left
  for (const std::uint32_t rank : {0u, 1u, 2u, 3u}) EXPECT_FALSE(ended(rank)) << rank;
  EXPECT_TRUE(lines_.empty());
}

TEST_F(JoiningProcesses, may_be_lost_like_others_but_do_not_start_again) {  // SV-8, SV-9, SV-10
  starts_ = true;
  start();
  join();
  kill(4);
  EXPECT_EQ(lines_.size(), 1u);
  EXPECT_TRUE(started_.empty());
  EXPECT_EQ(ask(JoinWanted{"teacher"}).process, ProcessId(4)) << "its number is free";
}

TEST_F(JoiningProcesses, leave_at_a_signal_while_others_end_the_run) {
  start();
  join();
  bench_.send(supervisors_[4], Interrupt{});
  bench_.deliver_all();
  EXPECT_TRUE(ended(4));
  EXPECT_FALSE(ended(0));
}

TEST_F(JoiningProcesses, that_do_not_come_leave_everything_as_it_is) {
  start();
  ASSERT_EQ(ask(JoinWanted{"teacher"}).refusal, "");
  EXPECT_EQ(refusal(JoinWanted{"teacher"}), "another process is joining or starting again; try again");
  bench_.send(supervisors_[0], ReplacementFailed{ProcessId(4), "it did not come within 60 s"});
  bench_.deliver_all();
  EXPECT_EQ(lines_, std::vector<std::string>{"process 4 has not joined: it did not come within 60 s"});
  EXPECT_FALSE(moved_);
  join();
  EXPECT_TRUE(moved_);
}

TEST_F(JoiningProcesses, and_leaving_ones_are_refused_by_name) {
  start();
  EXPECT_EQ(refusal(JoinWanted{"pupil"}), "no section is named 'pupil'; processes can join 'teacher'");
  EXPECT_EQ(refusal(JoinWanted{"student"}),
            "the replicas of section 'student' cannot move; processes can join 'teacher'");
  EXPECT_EQ(refusal(LeaveWanted{ProcessId(0)}), "process 0 coordinates the run; `maestro stop` ends it");
  EXPECT_EQ(refusal(LeaveWanted{ProcessId(4)}),
            "process 4 is not part of the run; `maestro status` lists its processes");
  EXPECT_EQ(refusal(LeaveWanted{ProcessId(3)}), "process 3 cannot leave: section 'student' has state that cannot move");
}

class ElasticSection : public JoiningProcesses {
 protected:
  ElasticSection() { elastic_ = {"teacher"}; }
  /// Reports several windows for a job whose student waits for the teacher if `student_waits`.
  void look(bool student_waits) {
    WaitingFor busy, waits, idle;
    waits.kind = WaitKind::input;
    waits.peer = teacher;
    idle.kind = WaitKind::work;
    states_[student] = student_waits ? waits : busy;
    states_[teacher] = student_waits ? busy : idle;
    pass(3 * PlacementBalance::window);
  }
  void pass(int looks) {
    while (looks-- > 0) bench_.advance(std::chrono::milliseconds(100));
  }
};

TEST_F(ElasticSection, has_processes_while_its_consumers_wait_for_it) {  // SV-11
  start();
  look(true);
  EXPECT_EQ(started_, std::vector<std::uint32_t>{4}) << "one at a time";
  come(4);
  look(true);
  EXPECT_EQ(started_, (std::vector<std::uint32_t>{4, 5}));
  come(5);
  look(true);
  EXPECT_EQ(started_.size(), 2u) << "there are no more replicas";
  EXPECT_EQ(lines_.back(), "replicas wait for section 'teacher' in 100% of the time: starting process 5 for it");
  look(false);
  EXPECT_TRUE(ended(4));
  EXPECT_TRUE(ended(5));
  EXPECT_FALSE(ended(0)) << "the processes of the start stay";
  EXPECT_FALSE(ended(1));
  EXPECT_EQ(lines_.back(), "the processes of section 'teacher' are idle in 100% of the time: ending process 5");
  look(true);
  EXPECT_EQ(started_, (std::vector<std::uint32_t>{4, 5, 4}));
  come(4);
  states_[student].kind = states_[teacher].kind = WaitKind::work;
  pass(3 * PlacementBalance::window);
  EXPECT_FALSE(ended(6)) << "a paused run gives nothing back: the second process 4";
}

TEST_F(ElasticSection, keeps_what_users_have_started) {  // SV-11
  start();
  join();
  look(false);
  EXPECT_FALSE(ended(4));
}

TEST_F(MovesOfPlacements, happen_for_no_joining_process_unless_the_job_has_such_a_section) {
  start();
  std::optional<PlacementAnswer> answer;
  const caf::actor asker = bench_.stand_in([&](const PlacementAnswer& given) { answer = given; });
  caf::send_as(asker, supervisors_[0], JoinWanted{"teacher"});
  bench_.deliver_all();
  EXPECT_NE(answer.value().refusal.find("no process can join or leave"), std::string::npos);
}

}  // namespace
}  // namespace maestro
