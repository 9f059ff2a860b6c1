// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/graph_policy.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace maestro {
namespace {

using std::chrono::microseconds;

GraphPolicyOptions options_of(std::size_t most_graphs, microseconds least) {
  GraphPolicyOptions options;
  options.most_graphs = most_graphs;
  options.least_issue_time = least;
  return options;
}

/// Runs `key` once like a device whose recordings all succeed; the device is as fast as the host.
GraphAction run(GraphPolicy& policy, GraphKey key, microseconds issue_time, microseconds device_time = {}) {
  const GraphAction action = policy.next(key);
  if (action == GraphAction::plain && policy.wants_times(key)) {
    policy.timed(key, issue_time, std::max(issue_time, device_time));
  } else if (action == GraphAction::plain) {
    policy.issued(key);
  }
  if (action == GraphAction::record) (void)policy.recorded(key);
  return action;
}

TEST(GraphPolicy, work_is_recorded_after_a_first_and_a_timed_run_and_replayed_from_then_on) {  // GP-1
  GraphPolicy policy(options_of(4, microseconds(40)));
  EXPECT_EQ(run(policy, 1, microseconds(5000)), GraphAction::plain);  // libraries start up
  EXPECT_EQ(run(policy, 1, microseconds(100)), GraphAction::plain);
  EXPECT_EQ(run(policy, 1, microseconds(0)), GraphAction::record);
  for (int again = 0; again < 3; ++again) EXPECT_EQ(run(policy, 1, microseconds(0)), GraphAction::replay);
  EXPECT_EQ(policy.graphs(), 1u);
}

TEST(GraphPolicy, with_no_least_time_the_second_run_is_recorded) {  // GP-1
  GraphPolicy policy(graph_options(GraphUse::always));
  EXPECT_EQ(run(policy, 1, microseconds(1), microseconds(1000)), GraphAction::plain);
  EXPECT_EQ(run(policy, 1, microseconds(1), microseconds(1000)), GraphAction::record);
}

TEST(GraphPolicy, work_that_the_host_issues_quickly_is_never_recorded) {
  GraphPolicy policy(options_of(4, microseconds(40)));
  EXPECT_EQ(run(policy, 1, microseconds(5000)), GraphAction::plain);
  for (int again = 0; again < 10; ++again) EXPECT_EQ(run(policy, 1, microseconds(39)), GraphAction::plain);
}

TEST(GraphPolicy, work_that_keeps_the_device_busy_for_longer_than_the_host_is_never_recorded) {  // GP-1
  GraphPolicy policy(options_of(4, microseconds(40)));
  for (const GraphKey key : {1u, 2u}) {
    const microseconds device(key == 1 ? 201 : 200);
    EXPECT_EQ(run(policy, key, microseconds(100), device), GraphAction::plain);
    EXPECT_EQ(run(policy, key, microseconds(100), device), GraphAction::plain);
  }
  for (int again = 0; again < 3; ++again) EXPECT_EQ(run(policy, 1, microseconds(500)), GraphAction::plain);
  EXPECT_EQ(run(policy, 2, microseconds(100)), GraphAction::record);
}

TEST(GraphPolicy, times_that_nobody_waits_for_may_come_late) {  // GP-1
  GraphPolicy policy(options_of(4, microseconds(40)));
  for (int again = 0; again < 4; ++again) {
    EXPECT_EQ(policy.next(1), GraphAction::plain);
    policy.issued(1);
    EXPECT_TRUE(policy.wants_times(1));
  }
  policy.timed(1, microseconds(100), microseconds(100));
  EXPECT_FALSE(policy.wants_times(1));
  EXPECT_EQ(policy.next(1), GraphAction::record);
}

TEST(RepeatingPlaces, that_never_repeat_are_left_alone_and_those_that_do_are_not) {  // GP-4
  RepeatingPlaces places(3);
  for (int run = 0; run < 3; ++run) {
    EXPECT_TRUE(places.worth_a_look(1));
    places.ran(1, GraphAction::plain);
    places.ran(2, GraphAction::plain);
    places.ran(2, run == 1 ? GraphAction::record : GraphAction::plain);
  }
  EXPECT_FALSE(places.worth_a_look(1));
  EXPECT_TRUE(places.worth_a_look(2));
  EXPECT_TRUE(places.worth_a_look(3));
}

TEST(GraphPolicy, a_recording_that_failed_is_not_tried_again) {  // GP-2
  GraphPolicy policy(options_of(4, microseconds(0)));
  EXPECT_EQ(run(policy, 1, microseconds(1)), GraphAction::plain);
  EXPECT_EQ(policy.next(1), GraphAction::record);
  policy.failed(1);
  for (int again = 0; again < 5; ++again) EXPECT_EQ(run(policy, 1, microseconds(100)), GraphAction::plain);
  EXPECT_EQ(policy.graphs(), 0u);
}

TEST(GraphPolicy, the_graph_that_was_used_longest_ago_goes_for_a_new_one) {  // GP-3
  GraphPolicy policy(options_of(2, microseconds(0)));
  for (const GraphKey key : {1u, 2u}) {
    EXPECT_EQ(run(policy, key, microseconds(1)), GraphAction::plain);
    EXPECT_EQ(run(policy, key, microseconds(1)), GraphAction::record);
  }
  EXPECT_EQ(policy.next(1), GraphAction::replay);
  EXPECT_EQ(policy.next(3), GraphAction::plain);
  policy.issued(3);
  EXPECT_EQ(policy.next(3), GraphAction::record);
  EXPECT_EQ(policy.recorded(3), GraphKey{2});
  EXPECT_EQ(policy.graphs(), 2u);
  for (int again = 0; again < 3; ++again) EXPECT_EQ(run(policy, 2, microseconds(1)), GraphAction::plain);
}

TEST(GraphPolicy, keys_without_a_graph_are_forgotten_in_the_end_and_graphs_are_not) {  // GP-3
  GraphPolicyOptions options = options_of(2, microseconds(0));
  options.most_keys = 8;
  GraphPolicy policy(options);
  EXPECT_EQ(run(policy, 0, microseconds(1)), GraphAction::plain);
  EXPECT_EQ(run(policy, 0, microseconds(1)), GraphAction::record);
  EXPECT_EQ(run(policy, 1, microseconds(1)), GraphAction::plain);
  for (GraphKey key = 2; key < 20; ++key) EXPECT_EQ(run(policy, key, microseconds(1)), GraphAction::plain);
  EXPECT_EQ(run(policy, 1, microseconds(1)), GraphAction::plain);  // like a new key
  EXPECT_EQ(policy.next(0), GraphAction::replay);
}

}  // namespace
}  // namespace maestro
