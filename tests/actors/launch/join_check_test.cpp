// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/join_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

using ::testing::IsEmpty;

JoinRequest process(std::int64_t rank, const std::string& host = "a") {
  return {.rank = rank,
          .processes = 4,
          .pid = 100 + rank,
          .host = host,
          .local_rank = 0,
          .version = "1.0",
          .token = "secret",
          .job = "name = 'test'\n\n[student]\nlr = 0.001\n"};
}

JoinCheck of_four() {
  return JoinCheck(process(0), {0, 0, 1, 1});
}

Refusal refusal_of(JoinRequest joining, void (*change)(JoinRequest&)) {
  change(joining);
  return of_four().admit(joining).value_or(Refusal{"admitted", false});
}

TEST(JoinCheck, is_complete_when_every_rank_has_come_once) {
  JoinCheck join_check = of_four();
  EXPECT_EQ(join_check.missing_text(), "process 1 (host 0), processes 2 and 3 (host 1)");
  EXPECT_FALSE(join_check.admit(process(3)));
  EXPECT_EQ(join_check.missing_text(), "process 1 (host 0), process 2 (host 1)");
  EXPECT_FALSE(join_check.admit(process(1)));
  EXPECT_FALSE(join_check.complete());
  EXPECT_FALSE(join_check.admit(process(2)));
  EXPECT_TRUE(join_check.complete());
  EXPECT_EQ(join_check.missing_text(), "");
  EXPECT_EQ(join_check.present().size(), 4u);
  EXPECT_EQ(join_check.present()[2].pid, 102);
}

TEST(JoinCheck, names_many_missing_processes_in_short) {
  JoinRequest root = process(0);
  root.processes = 16;
  JoinCheck join_check(root, std::vector<std::uint32_t>(16, 0));
  JoinRequest fourth = process(4);
  fourth.processes = 16;
  EXPECT_FALSE(join_check.admit(fourth));
  EXPECT_EQ(join_check.missing_text(), "processes 1-3 and 5-15 (host 0)");
}

TEST(JoinCheck, who_has_another_token_is_refused_alone_and_learns_nothing_else) {  // GA-1, GA-2
  for (const char* token : {"", "secres", "secret "}) {
    JoinRequest stranger = process(7);
    stranger.token = token;
    stranger.version = "2.0";
    const Refusal refusal = of_four().admit(stranger).value();
    EXPECT_EQ(refusal.reason, "its job token differs");
    EXPECT_FALSE(refusal.for_all);
  }
}

TEST(JoinCheck, who_does_not_fit_ends_the_start_with_both_sides_named) {  // GA-2
  const JoinRequest other = process(1, "b");
  const auto version = refusal_of(other, [](JoinRequest& joining) { joining.version = "2.0"; });
  EXPECT_EQ(version.reason, "versions differ between hosts: maestro 1.0 on a (rank 0), 2.0 on b (rank 1)");
  EXPECT_TRUE(version.for_all);
  const auto processes = refusal_of(other, [](JoinRequest& joining) { joining.processes = 5; });
  EXPECT_EQ(processes.reason, "the number of processes differs between hosts: 4 on a (rank 0), 5 on b (rank 1)");
  EXPECT_TRUE(processes.for_all);
  const auto rank = refusal_of(other, [](JoinRequest& joining) { joining.rank = 4; });
  EXPECT_EQ(rank.reason, "rank 4 (pid 101 on b) is not in the ranks 1 to 3");
  EXPECT_TRUE(rank.for_all);
  const auto root = refusal_of(other, [](JoinRequest& joining) { joining.rank = 0; });
  EXPECT_EQ(root.reason, "rank 0 (pid 101 on b) is not in the ranks 1 to 3");
  const auto job =
      refusal_of(other, [](JoinRequest& joining) { joining.job = "name = 'test'\n[student]\nlr = 3e-4\n"; });
  EXPECT_EQ(job.reason, "jobs differ between hosts: student.lr = 0.001 on a (rank 0), 0.0003 on b (rank 1)");
  EXPECT_TRUE(job.for_all);
}

TEST(JoinCheck, a_rank_that_is_taken_is_refused) {
  JoinCheck join_check = of_four();
  EXPECT_FALSE(join_check.admit(process(1, "a")));
  const Refusal refusal = join_check.admit(process(1, "b")).value();
  EXPECT_EQ(refusal.reason, "two processes have the same rank: rank 1 (pid 101 on a) and rank 1 (pid 101 on b)");
  EXPECT_TRUE(refusal.for_all);
}

std::string difference(const std::string& a, const std::string& b) {
  JoinRequest first = process(0);
  JoinRequest second = process(1, "b");
  first.job = a;
  second.job = b;
  return job_difference(first, second);
}

TEST(JobDifference, is_the_first_setting_that_differs_with_its_table) {
  EXPECT_THAT(difference("a = 1\n[t]\nb = 2\n", "a = 1\n[t]\nb = 2\n"), IsEmpty());
  EXPECT_EQ(difference("a = 1\n[t]\nb = 2\nc = 3\n", "a = 1\n[t]\nb = 4\nc = 5\n"),
            "t.b = 2 on a (rank 0), 4 on b (rank 1)");
  EXPECT_EQ(difference("[t]\nb = 2\n[u]\nb = 3\n", "[t]\nb = 2\n[u]\nb = 4\n"),
            "u.b = 3 on a (rank 0), 4 on b (rank 1)");
}

TEST(JobDifference, may_be_a_setting_that_one_of_them_lacks) {
  EXPECT_EQ(difference("[t]\nb = 2\n", "[t]\n"), "t.b = 2 on a (rank 0), nothing on b (rank 1)");
  EXPECT_EQ(difference("[t]\n", "[t]\nb = 2\n"), "t.b = 2 on b (rank 1), nothing on a (rank 0)");
}

TEST(JobDifference, sees_values_over_several_lines_and_tables_of_one_name) {
  EXPECT_EQ(difference("d = [\n  'x',\n  'y'\n]\n", "d = [\n  'x',\n  'z'\n]\n"),
            "d = ['x','y'] on a (rank 0), ['x','z'] on b (rank 1)");
  EXPECT_EQ(difference("[[t]]\nb = 1\n[[t]]\nb = 2\n", "[[t]]\nb = 1\n[[t]]\nb = 3\n"),
            "[t].b = 2 on a (rank 0), 3 on b (rank 1)");
}

TEST(JobDifference, ignores_how_a_job_is_laid_out) {
  EXPECT_THAT(difference("a = 1\n\n[t]\nb = 2\n", "  a = 1\n[t]\n\n b = 2"), IsEmpty());
}

TEST(JoinCheck, a_running_job_may_have_more_processes_than_it_had_at_the_start) {
  JoinCheck join_check(process(0), {0, 0, 0, 0, 0});
  for (const std::int64_t rank : {1, 2, 3}) EXPECT_FALSE(join_check.admit(process(rank)));
  EXPECT_FALSE(join_check.complete());
  EXPECT_EQ(join_check.missing_text(), "process 4 (host 0)");
  EXPECT_FALSE(join_check.admit(process(4)));
  EXPECT_TRUE(join_check.complete());
  EXPECT_TRUE(join_check.admit(process(5))) << "one too many";
}

}  // namespace
}  // namespace maestro
