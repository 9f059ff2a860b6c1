// SPDX-License-Identifier: Apache-2.0
#include "runtime/wavefront/equal_parts.hpp"

#include <gtest/gtest.h>

#include <map>

#include "runtime/wavefront/wavefront_policy.hpp"
#include "tests/wavefront/micro_batches.hpp"
#include "tests/wavefront/simulated_workloads.hpp"

namespace maestro {
namespace {

/// Returns `copies` copies of the workload; each section has the lanes and tasks of one copy after the other.
Workload copied(const Workload& one, std::int64_t copies) {
  constexpr int devices = 100;  // more than a copy has
  Workload all;
  all.edges = one.edges;
  std::map<std::pair<std::int64_t, std::size_t>, std::size_t> number;  // task number in the result
  for (std::size_t at = 0; at < one.sections.size(); ++at) {
    WorkloadSection& section = all.sections.emplace_back(one.sections[at]);
    section.replicas *= copies;
    section.devices.clear();
    section.speeds.clear();
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      for (std::vector<int> lane : one.sections[at].devices) {
        for (int& device : lane) device += devices * static_cast<int>(copy);
        section.devices.push_back(std::move(lane));
      }
      section.speeds.insert(section.speeds.end(), one.sections[at].speeds.begin(), one.sections[at].speeds.end());
      for (std::size_t task = 0; task < one.tasks.size(); ++task) {
        if (one.tasks[task].section != at) continue;
        number[{copy, task}] = all.tasks.size();
        WorkloadTask& made = all.tasks.emplace_back(one.tasks[task]);
        made.sample = static_cast<std::int64_t>(all.tasks.size());
        for (TaskInput& input : made.inputs) input.task = number.at({copy, input.task});
      }
    }
  }
  return all;
}

/// Returns a teacher and a student, forward and backward, that share four devices; otherwise the student has two more.
Workload distillation(bool shared) {
  Workload workload;
  workload.sections = {
      {"teacher", false, 4, no_limit, {{0}, {1}, {2}, {3}}},
      {"student", true, 2, 2,
       shared ? std::vector<std::vector<int>>{{0, 1}, {2, 3}} : std::vector<std::vector<int>>{{4}, {5}}}};
  workload.edges = {{0, 1, 3, 0.5}};
  for (std::int64_t task = 0; task < 8; ++task) workload.tasks.push_back({0, task, 3, 0, {}});
  for (std::size_t task = 0; task < 4; ++task) {
    workload.tasks.push_back({1, static_cast<std::int64_t>(task), 2, 4, {{0, 2 * task}, {0, 2 * task + 1}}});
  }
  return workload;
}

TEST(EqualParts, a_repeated_schedule_is_legal_and_as_long_as_that_of_its_part) {  // EQ-1
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Workload one = micro_batch_workload(seed);
    if (seed % 2 == 0) spread_over_devices(one, random);
    if (seed % 3 == 0) one.sections.back().speeds.assign(static_cast<std::size_t>(one.sections.back().replicas), 0.5);
    if (seed % 3 == 0) one.sections.back().speeds.front() = 1;
    const Workload whole = copied(one, 3);
    const auto parts = EqualParts::of(whole);
    ASSERT_TRUE(parts);
    EXPECT_EQ(parts->count() % 3, 0);
    found += parts->count() == 3 ? 1 : 0;
    EXPECT_EQ(parts->part().tasks.size() * static_cast<std::size_t>(parts->count()), whole.tasks.size());
    const Result<Schedule> of_part = WavefrontPolicy({.evaluations = 20}).plan(parts->part());
    ASSERT_TRUE(of_part) << of_part.error().message;
    const Schedule repeated = parts->repeated(*of_part);
    EXPECT_EQ(repeated.makespan_ms, of_part->makespan_ms);
    const Status legal = check_schedule(whole, repeated);
    EXPECT_TRUE(legal) << legal.error().message;
  }
  EXPECT_GT(found, 60) << "the tests are of random copies";
}

TEST(EqualParts, the_smallest_are_found) {
  for (const bool shared : {true, false}) {
    EXPECT_EQ(EqualParts::of(distillation(shared)).value().count(), 2);
    const auto parts = EqualParts::of(copied(distillation(shared), 8));
    ASSERT_TRUE(parts);
    EXPECT_EQ(parts->count(), 16);
    EXPECT_EQ(parts->part().sections[0].replicas, 2);
    EXPECT_EQ(parts->part().sections[1].replicas, 1);
    EXPECT_EQ(parts->part().tasks.size(), 6U);
  }
}

TEST(EqualParts, have_as_many_lanes_of_each_speed) {  // EQ-1
  Workload whole = copied(distillation(false), 4);
  std::vector<double>& speeds = whole.sections[0].speeds;  // by lane, 16 lanes
  speeds.assign(12, 1);
  speeds.resize(16, 0.25);
  const auto parts = EqualParts::of(whole);
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->count(), 4) << "of 12 fast lanes, 4 slow ones and 8 students";
  EXPECT_EQ(parts->part().sections[0].speeds, (std::vector<double>{1, 1, 1, 0.25}));
  EXPECT_EQ(parts->part().sections[0].devices.back(), whole.sections[0].devices[12]);
  const Result<Schedule> of_part = WavefrontPolicy({.evaluations = 20}).plan(parts->part());
  ASSERT_TRUE(of_part);
  const Schedule repeated = parts->repeated(*of_part);
  const Status legal = check_schedule(whole, repeated);
  EXPECT_TRUE(legal) << legal.error().message;
  std::map<std::int64_t, int> passes;  // by the teacher's lane
  for (const PlannedPass& pass : repeated.passes) {
    if (whole.tasks[pass.task].section == 0) ++passes[pass.replica];
  }
  const auto of = [&](std::int64_t lane) { return passes.contains(lane) ? passes.at(lane) : 0; };
  for (std::int64_t lane = 0; lane < 16; ++lane) {
    EXPECT_EQ(of(lane), of(lane < 12 ? lane % 3 : 12)) << lane;
  }
  EXPECT_GT(of(0), of(12)) << "a slow lane gets less work";
  speeds[11] = 0.25;
  EXPECT_FALSE(EqualParts::of(whole)) << "11 fast lanes and 5 slow ones";
}

TEST(EqualParts, there_are_none_where_a_task_a_lane_an_input_or_a_device_differs) {
  const Workload whole = copied(distillation(true), 2);
  ASSERT_TRUE(EqualParts::of(whole));
  Workload other = whole;
  other.tasks[3].forward_ms = 4;
  EXPECT_FALSE(EqualParts::of(other)) << "a task takes longer";
  other = whole;
  other.sections[0].speeds = {1, 1, 1, 1, 1, 1, 1, 0.5};
  EXPECT_FALSE(EqualParts::of(other)) << "a lane is slower";
  other = whole;
  std::swap(other.tasks[16].inputs[0].task, other.tasks[20].inputs[0].task);
  EXPECT_FALSE(EqualParts::of(other)) << "tasks have inputs of another part";
  other = whole;
  other.sections[0].devices[7] = other.sections[0].devices[0];
  EXPECT_FALSE(EqualParts::of(other)) << "two parts share a device";
  other = whole;
  std::swap(other.sections[1].devices[0], other.sections[1].devices[3]);
  EXPECT_FALSE(EqualParts::of(other)) << "lanes share the devices of another part";
  other = whole;
  other.tasks.pop_back();
  EXPECT_FALSE(EqualParts::of(other)) << "a task is missing";
}

TEST(Wavefront, gives_equal_lanes_equal_work_on_shared_devices) {  // WF-4
  const Workload whole = copied(distillation(true), 16);
  const Result<Schedule> schedule = WavefrontPolicy({}).plan(whole);
  ASSERT_TRUE(schedule);
  std::map<std::pair<std::size_t, std::int64_t>, int> passes;
  for (const PlannedPass& pass : schedule->passes) {
    if (!pass.backward) ++passes[{whole.tasks[pass.task].section, pass.replica}];
  }
  EXPECT_EQ(passes.size(), 64U + 32U);
  for (const auto& [lane, count] : passes) EXPECT_EQ(count, 2) << lane.first << "/" << lane.second;
}

}  // namespace
}  // namespace maestro
