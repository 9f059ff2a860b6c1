// SPDX-License-Identifier: Apache-2.0
#include "actors/job/planning_options.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

using Sets = std::vector<std::vector<int>>;

/// Returns a job: an encoder with two replicas, and an llm with two replicas of two ranks each.
ResolvedJob job_with(std::vector<ReplicaPlacement> places) {
  ResolvedJob plan;
  GraphNode vision;
  vision.name = "vision";
  vision.replicas = 2;
  plan.graph.add(vision);
  GraphNode llm;
  llm.name = "llm";
  llm.replicas = 2;
  llm.layout = {1, 2};
  plan.graph.add(llm);
  plan.places = std::move(places);
  return plan;
}

ReplicaPlacement place(std::uint32_t section, std::uint32_t replica, std::vector<int> cores, std::uint32_t host = 0) {
  std::vector<DeviceId> devices;
  for (const int core : cores) devices.push_back({DeviceId::Kind::cpu, core});
  return {SectionId(section), ReplicaIndex(replica), ProcessId(host), std::move(devices), host};
}

TEST(PlanningOptions, a_lane_occupies_the_devices_of_all_its_ranks) {
  const ResolvedJob plan = job_with({place(0, 0, {1}), place(0, 1, {1}, 1), place(1, 0, {0, 1}), place(1, 1, {2, 3})});
  const StepPlannerOptions options = planner_options(plan);
  ASSERT_EQ(options.devices.size(), 2u);
  EXPECT_EQ(options.devices[0], (Sets{{0}, {1}})) << "cores of two hosts are different devices";
  EXPECT_EQ(options.devices[1], (Sets{{2, 0}, {3, 4}})) << "the second rank is on the encoder's core";
}

TEST(PlanningOptions, a_replica_that_shares_a_place_counts_with_a_device_of_its_own) {
  ReplicaPlacement guest = place(0, 1, {1});
  guest.shares = true;
  const ResolvedJob plan = job_with({place(0, 0, {1}), guest, place(1, 0, {0, 1}), place(1, 1, {2, 3})});
  EXPECT_EQ(planner_options(plan).devices, (std::vector<Sets>{{{0}, {1}}, {{2, 0}, {3, 4}}}));
}

TEST(PlanningOptions, lanes_take_turns_on_the_devices_that_they_share_in_a_process) {
  using Turns = std::vector<std::vector<std::vector<std::uint32_t>>>;
  std::vector<ReplicaPlacement> places{place(0, 0, {1}), place(0, 1, {1}, 1), place(1, 0, {0, 1}), place(1, 1, {2, 3})};
  EXPECT_EQ(planner_options(job_with(places)).turns, (Turns{{{0}, {}}, {{0}, {}}})) << "core 1 of the first host";
  places[0].process = ProcessId(2);
  EXPECT_TRUE(planner_options(job_with(places)).turns.empty()) << "two processes have threads of their own";
  places[1] = place(0, 1, {2});
  places[1].shares = true;
  EXPECT_TRUE(planner_options(job_with(places)).turns.empty()) << "the replica has moved to the other's core";
  for (ReplicaPlacement& at : places) {
    at = place(at.section.value(), at.replica.value(), {});
    at.devices.assign(at.section.value() + 1, {DeviceId::Kind::cuda, 0});
  }
  EXPECT_TRUE(planner_options(job_with(places)).turns.empty()) << "a GPU runs the streams of sections at once";
}

TEST(PlanningOptions, sections_of_half_the_speed_take_twice_the_time_in_plans) {
  ResolvedJob plan = job_with({});
  plan.sections.resize(2);
  plan.cost = [](SectionId, const SampleRef& sample) {
    return PassCost{1e9 * static_cast<double>(sample.tokens), 2e9 * static_cast<double>(sample.tokens)};
  };
  const std::vector<SampleRef> samples{{SampleId(0), 10, 0, 0, 1}};
  const PassCost before = planned_costs(plan).of(SectionId(1), samples);
  plan.sections[1].config.speed = 0.5;
  const PassCost after = planned_costs(plan).of(SectionId(1), samples);
  EXPECT_DOUBLE_EQ(after.forward, 2 * before.forward);
  EXPECT_DOUBLE_EQ(after.backward, 2 * before.backward);
  EXPECT_DOUBLE_EQ(planned_costs(plan).of(SectionId(0), samples).forward, before.forward);
}

TEST(PlanningOptions, plans_assume_another_speed_where_all_sections_are_on_gpus) {
  const std::vector<SampleRef> samples{{SampleId(0), 10, 0, 0, 1}};
  const auto forward_ms = [&](std::vector<ReplicaPlacement> places) {
    ResolvedJob plan = job_with(std::move(places));
    plan.sections.resize(2);
    plan.cost = [](SectionId, const SampleRef&) { return PassCost{4.5e11, 9e11}; };
    return planned_costs(plan).of(SectionId(1), samples).forward;
  };
  ReplicaPlacement on_gpu = place(1, 0, {});
  on_gpu.devices = {{DeviceId::Kind::cuda, 0}};
  EXPECT_DOUBLE_EQ(forward_ms({on_gpu}), 1);
  EXPECT_DOUBLE_EQ(forward_ms({on_gpu, place(0, 0, {1})}), 9000) << "one rate for all (CS-1)";
}

TEST(PlanningOptions, lanes_have_the_speeds_of_their_replicas) {
  ResolvedJob plan = job_with({});
  plan.sections.resize(2);
  plan.sections[1].config.replica_speeds = {1, 0.25};
  plan.cost = [](SectionId, const SampleRef&) { return PassCost{1e9, 2e9}; };
  EXPECT_EQ(planner_options(plan).speeds, (std::vector<std::vector<double>>{{}, {1, 0.25}}));
  const std::vector<SampleRef> samples{{SampleId(0), 10, 0, 0, 1}};
  const PassCost fastest = planned_costs(plan).of(SectionId(1), samples);
  EXPECT_EQ(replica_costs(plan, SectionId(1), ReplicaIndex(0))(samples).forward, fastest.forward);
  const PassCost slower = replica_costs(plan, SectionId(1), ReplicaIndex(1))(samples);
  EXPECT_DOUBLE_EQ(slower.forward, 4 * fastest.forward);
  EXPECT_DOUBLE_EQ(slower.backward, 4 * fastest.backward);
}

}  // namespace
}  // namespace maestro
