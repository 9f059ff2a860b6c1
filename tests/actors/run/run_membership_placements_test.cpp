// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "actors/run/supervisor/run_membership.hpp"

namespace maestro {
namespace {

constexpr ProcessId p0(0), p1(1), p2(2);

/// Returns rank 0's membership in a running job of three processes.
RunMembership running_root() {
  RunMembership root(p0, {0, 0, 0});
  root.listed();
  root.wired();
  for (const Milestone milestone : {Milestone::joined, Milestone::ready}) {
    for (const ProcessId process : {p0, p1, p2}) root.record(milestone, process);
  }
  return root;
}

TEST(RunMembershipPlacements, a_process_that_has_left_is_neither_awaited_nor_lost) {  // RM-7
  RunMembership root = running_root();
  EXPECT_TRUE(root.leave(p1));
  EXPECT_TRUE(root.has_left(p1));
  EXPECT_TRUE(root.complete(Milestone::joined));
  EXPECT_EQ(root.lost(p1), LossVerdict::ignored);
  EXPECT_EQ(root.phase(), RunPhase::running);
  EXPECT_TRUE(root.finish());
  EXPECT_EQ(root.record(Milestone::summarised, p0), Tally::counted);
  EXPECT_EQ(root.record(Milestone::summarised, p1), Tally::ignored);
  EXPECT_EQ(root.record(Milestone::summarised, p2), Tally::last);
}

TEST(RunMembershipPlacements, a_replacement_counts_as_its_predecessor_did) {  // RM-7
  RunMembership root = running_root();
  EXPECT_FALSE(root.come(p1)) << "it has not left";
  EXPECT_TRUE(root.leave(p1));
  EXPECT_TRUE(root.come(p1));
  EXPECT_EQ(root.lost(p1), LossVerdict::noted);
}

TEST(RunMembershipPlacements, no_process_leaves_before_the_run_runs_or_after_it_finishes) {  // RM-7
  RunMembership wiring(p0, {0, 0, 0});
  wiring.listed();
  wiring.wired();
  EXPECT_FALSE(wiring.leave(p1));
  RunMembership finishing = running_root();
  EXPECT_TRUE(finishing.leave(p2));
  EXPECT_TRUE(finishing.finish());
  EXPECT_FALSE(finishing.leave(p1));
  EXPECT_FALSE(finishing.has_left(p1));
  EXPECT_FALSE(finishing.come(p2));
}

TEST(RunMembershipPlacements, a_peer_that_has_left_is_not_lost_and_prints_nothing) {  // RM-7
  RunMembership other(p2, {1, 0, 0});
  other.listed();
  other.wired();
  EXPECT_FALSE(other.prints());
  EXPECT_TRUE(other.leave(p1));
  EXPECT_EQ(other.lost(p1), LossVerdict::ignored);
  EXPECT_TRUE(other.prints());
}

TEST(RunMembershipPlacements, a_replacement_awaits_those_that_are_there) {  // RM-7
  RunMembership replacement(p2, {0, 0, 0});
  replacement.miss(p1);
  EXPECT_EQ(replacement.listed(), Tally::last) << "there is no other peer";
}

TEST(RunMembershipPlacements, processes_that_may_join_are_not_awaited_until_they_come) {  // RM-7
  RunMembership root(p0, {0, 0, 0}, 1);
  EXPECT_EQ(root.processes(), 2u);
  EXPECT_EQ(root.most_processes(), 3u);
  EXPECT_EQ(root.record(Milestone::joined, p0), Tally::counted);
  EXPECT_EQ(root.record(Milestone::joined, p1), Tally::last);
  EXPECT_EQ(root.record(Milestone::joined, p2), Tally::ignored);
  EXPECT_TRUE(root.come(p2));
  EXPECT_EQ(root.processes(), 3u);
  RunMembership joining(p2, {0, 0, 0}, 1);
  EXPECT_FALSE(joining.has_left(p2)) << "it is there";
}

}  // namespace
}  // namespace maestro
