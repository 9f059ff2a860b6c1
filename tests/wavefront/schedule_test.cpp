// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace maestro {
namespace {

using testing::HasSubstr;

constexpr std::size_t vision_0 = 0, llm_0 = 1, vision_1 = 2, llm_1 = 3, llm_2 = 4;

/// Samples 0 and 1 have images, sample 2 has none.
Workload two_sections() {
  Workload workload;
  workload.sections = {{"vision", true, 1, 2, {}}, {"llm", true, 2, 1, {}}};
  workload.edges = {{0, 1, 1, 1.0}};
  workload.tasks = {
      {0, 0, 2, 4, {}}, {1, 0, 3, 6, {{0, 0}}}, {0, 1, 2, 4, {}}, {1, 1, 3, 6, {{0, 2}}}, {1, 2, 5, 10, {}},
  };
  return workload;
}

Schedule legal_schedule() {
  return {{{vision_0, false, 0, 0, 2},
           {vision_1, false, 0, 2, 4},
           {llm_0, false, 0, 3, 6},
           {llm_1, false, 1, 5, 8},
           {llm_0, true, 0, 6, 12},
           {llm_1, true, 1, 8, 14},
           {llm_2, false, 0, 12, 17},
           {vision_0, true, 0, 13, 17},
           {llm_2, true, 0, 17, 27},
           {vision_1, true, 0, 17, 21}},
          27};
}

PlannedPass& pass_of(Schedule& schedule, std::size_t task, bool backward) {
  return *std::find_if(schedule.passes.begin(), schedule.passes.end(),
                       [&](const PlannedPass& pass) { return pass.task == task && pass.backward == backward; });
}

void move_to(Schedule& schedule, std::size_t task, bool backward, double start_ms) {
  PlannedPass& pass = pass_of(schedule, task, backward);
  pass.end_ms += start_ms - pass.start_ms;
  pass.start_ms = start_ms;
  std::stable_sort(schedule.passes.begin(), schedule.passes.end(),
                   [](const auto& a, const auto& b) { return a.start_ms < b.start_ms; });
  schedule.makespan_ms = 0;
  for (const PlannedPass& each : schedule.passes) schedule.makespan_ms = std::max(schedule.makespan_ms, each.end_ms);
}

std::string problem(const Workload& workload, const Schedule& schedule) {
  const Status status = check_schedule(workload, schedule);
  return status.ok() ? "legal" : status.error().message;
}

/// Returns the error for the legal schedule after a change.
std::string problem_after(const std::function<void(Workload&, Schedule&)>& change) {
  Workload workload = two_sections();
  Schedule schedule = legal_schedule();
  change(workload, schedule);
  return problem(workload, schedule);
}

TEST(CheckSchedule, a_legal_schedule_passes) {
  EXPECT_EQ(problem(two_sections(), legal_schedule()), "legal");
}

TEST(CheckSchedule, a_missing_pass_is_named) {
  EXPECT_EQ(problem_after([](Workload&, Schedule& schedule) { schedule.passes.pop_back(); }),
            "schedule: vision, sample 1: its backward pass is missing");
  EXPECT_THAT(problem_after([](Workload& workload, Schedule&) {
                workload.tasks.push_back({1, 7, 1, 1, {}});
              }),
              HasSubstr("llm, sample 7: its forward pass is missing"));
}

TEST(CheckSchedule, a_pass_runs_once) {
  EXPECT_EQ(problem_after([](Workload&, Schedule& schedule) { schedule.passes.push_back(schedule.passes.back()); }),
            "schedule: vision replica 0, sample 1: its backward pass is there twice, at 17 ms and at 17 ms");
}

TEST(CheckSchedule, a_backward_pass_stays_on_the_lane_of_its_forward_pass) {
  EXPECT_EQ(problem_after([](Workload&, Schedule& schedule) { pass_of(schedule, llm_2, true).replica = 1; }),
            "schedule: llm replica 1, sample 2: its backward pass at 17 ms is on another replica than its forward pass "
            "at 12 ms on replica 0");
}

TEST(CheckSchedule, a_pass_takes_as_long_as_its_task_says) {
  EXPECT_EQ(problem_after([](Workload&, Schedule& schedule) { pass_of(schedule, vision_0, false).end_ms = 1.5; }),
            "schedule: vision replica 0, sample 0: its forward pass runs from 0 ms to 1.5 ms, but takes 2 ms");
}

TEST(CheckSchedule, tasks_and_replicas_that_are_not_there_are_refused) {
  EXPECT_THAT(problem_after([](Workload&, Schedule& schedule) { schedule.passes[0].task = 5; }),
              HasSubstr("a pass of task 5, but the workload has 5 tasks"));
  EXPECT_THAT(
      problem_after([](Workload&, Schedule& schedule) { schedule.passes[0].replica = 1; }),
      HasSubstr("vision replica 1, sample 0: its forward pass is on a replica that is not there; vision has 1"));
  EXPECT_THAT(problem_after([](Workload&, Schedule& schedule) { schedule.passes[0].replica = -1; }),
              HasSubstr("not there"));
}

TEST(CheckSchedule, a_section_that_is_not_trained_has_no_backward_passes) {
  EXPECT_THAT(problem_after([](Workload& workload, Schedule&) { workload.sections[0].has_backward = false; }),
              HasSubstr("the section is not trained"));
}

TEST(CheckSchedule, times_are_finite_and_not_negative) {
  EXPECT_THAT(problem_after([](Workload&, Schedule& schedule) { move_to(schedule, vision_0, false, -1); }),
              HasSubstr("runs from -1 ms"));
  EXPECT_THAT(problem_after([](Workload&, Schedule& schedule) { schedule.passes[0].end_ms = NAN; }),
              HasSubstr("runs from 0 ms to nan ms"));
}

TEST(CheckSchedule, passes_are_listed_by_their_start) {
  EXPECT_THAT(problem_after([](Workload&, Schedule& schedule) { std::swap(schedule.passes[3], schedule.passes[4]); }),
              HasSubstr("starts at 5 ms, but is listed after one that starts at 6 ms"));
}

TEST(CheckSchedule, the_makespan_is_the_end_of_the_last_pass) {
  EXPECT_EQ(problem_after([](Workload&, Schedule& schedule) { schedule.makespan_ms = 26; }),
            "schedule: makespan is 26 ms, but its last pass ends at 27 ms");
}

TEST(CheckSchedule, a_lane_runs_one_pass_at_a_time) {
  EXPECT_EQ(
      problem_after([](Workload&, Schedule& schedule) { move_to(schedule, llm_2, false, 11); }),
      "schedule: llm replica 0, sample 2: its forward pass starts at 11 ms, before that of sample 0 ends at 12 ms");
}

TEST(CheckSchedule, a_pass_without_length_is_no_exception_inside_another) {
  EXPECT_THAT(problem_after([](Workload& workload, Schedule& schedule) {
                workload.tasks.push_back({1, 3, 0, 0, {}});
                schedule.passes.insert(schedule.passes.begin() + 7, {5, false, 1, 13, 13});
                schedule.passes.insert(schedule.passes.begin() + 8, {5, true, 1, 13, 13});
              }),
              HasSubstr("llm replica 1, sample 3: its forward pass starts at 13 ms, before that of sample 1"));
}

TEST(CheckSchedule, lanes_of_one_device_take_turns) {
  EXPECT_EQ(problem_after([](Workload& workload, Schedule&) {
              workload.sections[0].devices = {{4}};
              workload.sections[1].devices = {{4}, {5}};
            }),
            "schedule: llm replica 0, sample 0: its forward pass starts at 3 ms, before that of vision replica 0, "
            "sample 1 on the same device 4 ends at 4 ms");
  EXPECT_EQ(problem_after([](Workload& workload, Schedule&) {
              workload.sections[0].devices = {{3}};
              workload.sections[1].devices = {{4}, {5}};
            }),
            "legal");
}

TEST(CheckSchedule, a_pass_occupies_every_device_of_its_lane) {
  EXPECT_EQ(problem_after([](Workload& workload, Schedule&) {
              workload.sections[0].devices = {{4}};
              workload.sections[1].devices = {{6, 4}, {5}};
            }),
            "schedule: llm replica 0, sample 0: its forward pass starts at 3 ms, before that of vision replica 0, "
            "sample 1 on the same device 4 ends at 4 ms");
  EXPECT_EQ(problem_after([](Workload& workload, Schedule&) {
              workload.sections[0].devices = {{3, 7}};
              workload.sections[1].devices = {{6, 4}, {5, 8}};
            }),
            "legal");
}

TEST(CheckSchedule, a_forward_pass_waits_for_its_inputs_and_their_transfer) {
  EXPECT_EQ(
      problem_after([](Workload&, Schedule& schedule) { move_to(schedule, llm_1, false, 4.5); }),
      "schedule: llm replica 1, sample 1: its forward pass starts at 4.5 ms, before its input from vision is there "
      "at 5 ms");
}

TEST(CheckSchedule, a_backward_pass_waits_for_its_forward_pass) {
  EXPECT_EQ(
      problem_after([](Workload&, Schedule& schedule) {
        move_to(schedule, llm_2, false, 22);
        move_to(schedule, llm_2, true, 12);
      }),
      "schedule: llm replica 0, sample 2: its backward pass starts at 12 ms, before its forward pass ends at 27 ms");
}

TEST(CheckSchedule, a_backward_pass_waits_for_its_gradients_and_their_transfer) {
  EXPECT_EQ(
      problem_after([](Workload&, Schedule& schedule) { move_to(schedule, vision_0, true, 12.5); }),
      "schedule: vision replica 0, sample 0: its backward pass starts at 12.5 ms, before the gradient from llm is "
      "there at 13 ms");
}

TEST(CheckSchedule, a_backward_pass_waits_for_the_run_of_frozen_sections_behind_it) {
  Workload workload;
  workload.sections = {{"llm", true, 1, no_limit, {}}, {"judge", false, 1, no_limit, {}}};
  workload.edges = {{0, 1, no_limit, 1.0}};
  workload.tasks = {{0, 0, 2, 4, {}}, {1, 0, 3, 0, {{0, 0}}}};
  const Schedule legal{{{0, false, 0, 0, 2}, {1, false, 0, 3, 6}, {0, true, 0, 6, 10}}, 10};
  EXPECT_EQ(problem(workload, legal), "legal");
  const Schedule hasty{{{0, false, 0, 0, 2}, {1, false, 0, 3, 6}, {0, true, 0, 5, 9}}, 9};
  EXPECT_EQ(
      problem(workload, hasty),
      "schedule: llm replica 0, sample 0: its backward pass starts at 5 ms, before the forward pass of judge ends "
      "at 6 ms");
}

/// Puts both image samples on lane 0, one after the other; the first is taken at `taken_ms`.
Schedule on_one_lane(double taken_ms) {
  Schedule schedule = legal_schedule();
  for (const bool backward : {false, true}) {
    pass_of(schedule, llm_1, backward).replica = 0;
    pass_of(schedule, llm_2, backward).replica = 1;
  }
  move_to(schedule, llm_0, false, taken_ms);
  move_to(schedule, llm_0, true, taken_ms + 3);
  move_to(schedule, llm_1, false, taken_ms + 9);
  move_to(schedule, llm_1, true, taken_ms + 12);
  move_to(schedule, vision_0, true, taken_ms + 10);
  move_to(schedule, vision_1, true, taken_ms + 19);
  return schedule;
}

TEST(CheckSchedule, an_output_needs_a_slot_from_its_end_until_it_is_taken) {
  Workload workload = two_sections();
  EXPECT_EQ(
      problem(workload, on_one_lane(5)),
      "schedule: llm replica 0, sample 1: its input from vision is made at 4 ms and taken at 14 ms, but all 1 slots "
      "of the edge hold others");
  workload.edges[0].slots = 2;
  EXPECT_EQ(problem(workload, on_one_lane(5)), "legal");
  workload.edges[0].slots = no_limit;
  EXPECT_EQ(problem(workload, on_one_lane(5)), "legal");
}

TEST(CheckSchedule, a_slot_is_free_at_the_moment_its_tensor_is_taken) {
  EXPECT_EQ(problem(two_sections(), on_one_lane(4)), "legal");
  EXPECT_THAT(problem(two_sections(), on_one_lane(4.001)), HasSubstr("slots of the edge hold others"));
}

TEST(CheckSchedule, slots_are_those_of_one_lane) {
  Workload workload = two_sections();
  Schedule schedule = legal_schedule();
  move_to(schedule, llm_0, false, 4.5);  // while the output of sample 1 waits for lane 1
  move_to(schedule, llm_0, true, 7.5);
  for (const bool backward : {false, true}) move_to(schedule, llm_2, backward, backward ? 18.5 : 13.5);
  move_to(schedule, vision_0, true, 14.5);
  move_to(schedule, vision_1, true, 18.5);
  EXPECT_EQ(problem(workload, schedule), "legal");
}

TEST(CheckSchedule, a_lane_holds_no_more_tasks_than_its_in_flight_limit) {
  EXPECT_EQ(
      problem_after([](Workload& workload, Schedule&) { workload.sections[0].max_in_flight = 1; }),
      "schedule: vision replica 0, sample 1 is in flight from 2 ms to 21 ms, but max_in_flight 1 is taken by others "
      "at its start");
  EXPECT_EQ(problem_after([](Workload& workload, Schedule&) { workload.sections[0].max_in_flight = no_limit; }),
            "legal");
}

TEST(CheckSchedule, rounding_is_forgiven_within_the_tolerance) {
  Schedule schedule = legal_schedule();
  move_to(schedule, llm_2, false, 12 - 5e-7);
  EXPECT_EQ(problem(two_sections(), schedule), "legal");
  EXPECT_FALSE(check_schedule(two_sections(), schedule, 1e-7).ok());
}

TEST(Utilization, is_the_busy_share_of_all_lanes_of_a_section) {
  const std::vector<double> shares = utilization(two_sections(), legal_schedule());
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_DOUBLE_EQ(shares[0], 12.0 / 27);
  EXPECT_DOUBLE_EQ(shares[1], 33.0 / (2 * 27));
}

TEST(Utilization, of_no_time_is_nothing) {
  EXPECT_EQ(utilization({{{"llm", true, 1, no_limit, {}}}, {}, {}}, {}), std::vector<double>{0.0});
}

}  // namespace
}  // namespace maestro
