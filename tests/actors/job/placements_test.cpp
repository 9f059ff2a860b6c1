// SPDX-License-Identifier: Apache-2.0
#include "actors/job/placements.hpp"

#include <gtest/gtest.h>

#include "actors/job/plan_checks.hpp"
#include "tests/schedule/small_graph.hpp"

namespace maestro {
namespace {

using testing::distillation_graph;

const SectionId source(0), teacher(1), student(2);

Placement placement(SectionId section, std::uint32_t replica, std::uint32_t process) {
  return {section, ReplicaIndex(replica), ProcessId(process)};
}

TEST(Placements, go_to_the_process_with_the_fewest_placements_of_the_section) {
  const std::vector<Placement> placements = {
      placement(source, 0, 0),  placement(teacher, 0, 1), placement(teacher, 1, 1), placement(teacher, 2, 2),
      placement(teacher, 3, 3), placement(teacher, 4, 3), placement(student, 0, 2)};
  const auto moved = adopt_placements(distillation_graph(), placements, ProcessId(3));
  ASSERT_TRUE(moved) << moved.error().message;
  EXPECT_EQ(*moved, (std::vector<Placement>{placement(teacher, 3, 2), placement(teacher, 4, 1)}));
}

TEST(Placements, of_a_process_with_a_trained_section_stay) {
  const std::vector<Placement> placements = {placement(teacher, 0, 1), placement(teacher, 1, 2),
                                             placement(student, 0, 2), placement(student, 1, 1)};
  const auto moved = adopt_placements(distillation_graph(), placements, ProcessId(2));
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().message, "section 'student' has state that cannot move");
}

TEST(Placements, need_another_process_with_the_section) {
  const std::vector<Placement> placements = {placement(source, 0, 0), placement(teacher, 0, 1),
                                             placement(teacher, 1, 1), placement(student, 0, 2)};
  const auto moved = adopt_placements(distillation_graph(), placements, ProcessId(1));
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().message, "no other process has section 'teacher'");
}

TEST(Placements, go_to_a_process_with_a_replica_of_the_same_context) {
  const SectionGraph alike = distillation_graph(3);
  SectionGraph graph;
  for (GraphNode node : alike.nodes()) {
    if (node.name == "teacher") node.contexts = {2, 1, 1};
    node.ports.inputs.clear();
    graph.add(std::move(node));
  }
  const std::vector<Placement> placements = {placement(source, 0, 0), placement(teacher, 0, 1),
                                             placement(teacher, 1, 2), placement(teacher, 2, 3)};
  const auto moved = adopt_placements(graph, placements, ProcessId(3));
  ASSERT_TRUE(moved) << moved.error().message;
  EXPECT_EQ(*moved, (std::vector<Placement>{placement(teacher, 2, 2)}));
  const auto stays = adopt_placements(graph, placements, ProcessId(1));
  ASSERT_FALSE(stays);
  EXPECT_EQ(stays.error().message, "no other process has section 'teacher' with context = 2");
}

TEST(Placements, of_a_process_follow_the_moves) {
  std::vector<Placement> own = {placement(source, 0, 0), placement(teacher, 0, 0)};
  const std::vector<Placement> moved = {placement(teacher, 0, 1), placement(teacher, 1, 0), placement(source, 0, 0)};
  follow_moves(own, moved, ProcessId(0));
  EXPECT_EQ(own, (std::vector<Placement>{placement(teacher, 1, 0), placement(source, 0, 0)}));
}

TEST(Placements, stay_where_a_gpu_is_at_an_end_of_their_edges) {
  const auto cpu = [](SectionId section) {
    return ReplicaPlacement{section, ReplicaIndex(0), ProcessId(0), {DeviceId{DeviceId::Kind::cpu, 0}}, 0};
  };
  std::vector<ReplicaPlacement> places = {cpu(source), cpu(teacher), cpu(student)};
  EXPECT_EQ(why_placements_stay(distillation_graph(), places), "");
  places[2].devices = {DeviceId{DeviceId::Kind::cuda, 0}};
  EXPECT_EQ(why_placements_stay(distillation_graph(), places), "section 'student' is on a GPU");
}

TEST(Placements, are_shared_with_a_process_that_joins) {
  const SectionGraph graph = distillation_graph(6, 2);
  const std::vector<Placement> placements = {placement(teacher, 0, 1), placement(teacher, 1, 2),
                                             placement(teacher, 2, 1), placement(teacher, 3, 2),
                                             placement(teacher, 4, 1), placement(teacher, 5, 1)};
  const auto moved = share_placements(graph, placements, ProcessId(3), "teacher");
  ASSERT_TRUE(moved) << moved.error().message;
  EXPECT_EQ(*moved, (std::vector<Placement>{placement(teacher, 5, 3), placement(teacher, 4, 3)}));
  EXPECT_EQ(text_of(*moved, graph), "process 3 takes section 'teacher' replica 5 and 4");
  EXPECT_EQ(most_joining(graph), 5u);
  EXPECT_EQ(most_joining(distillation_graph(6)), 0u);
}

TEST(Placements, are_not_shared_where_each_replica_has_a_process_or_none_may_move) {
  const std::vector<Placement> placements = {placement(teacher, 0, 1), placement(teacher, 1, 2)};
  EXPECT_EQ(share_placements(distillation_graph(2, 1), placements, ProcessId(3), "teacher").error().message,
            "each of the 2 replicas of section 'teacher' already has a separate process");
  EXPECT_EQ(share_placements(distillation_graph(2, 1), placements, ProcessId(3), "student").error().message,
            "the replicas of section 'student' cannot move; processes can join 'teacher'");
  EXPECT_EQ(share_placements(distillation_graph(2), placements, ProcessId(3), "pupil").error().message,
            "no section is named 'pupil'; in the job file, give a frozen section replicas = {least = 1, most = N} for "
            "processes to join");
}

TEST(Placements, of_a_joining_process_of_an_emulated_section_have_a_device_of_their_own_for_each_rank) {
  SectionGraph graph;
  GraphNode node;
  node.name = "teacher";
  node.role = Role::frozen;
  node.replicas = 4;
  node.least = 1;
  node.layout = {1, 2};
  graph.add(node);
  const std::vector<ReplicaPlacement> places = {
      {SectionId(0), ReplicaIndex(0), ProcessId(0), {*parse_device("emulated:0"), *parse_device("emulated:1")}}};
  const auto joined = places_of_joining(graph, places, {"teacher", ProcessId(3), 0, 0}, "", 1);
  EXPECT_EQ(texts_of(joined.at(0).devices), (std::vector<std::string>{"emulated:teacher/6", "emulated:teacher/7"}));
}

TEST(Placements, of_a_joining_process_are_on_the_devices_that_few_use) {
  const SectionGraph graph = distillation_graph(4, 1);
  const auto on = [](SectionId section, int core, std::uint32_t host) {
    return ReplicaPlacement{section, ReplicaIndex(0), ProcessId(0), {DeviceId{DeviceId::Kind::cpu, core}}, host};
  };
  const std::vector<ReplicaPlacement> places = {on(teacher, 0, 0), on(student, 1, 0), on(student, 2, 1)};
  const auto device = [&](const Joining& joining, const std::string& wanted) {
    return text_of(places_of_joining(graph, places, joining, wanted, 4).at(0).devices.at(0));
  };
  EXPECT_EQ(device({"teacher", ProcessId(2), 0, 0}, ""), "cpu:2");
  EXPECT_EQ(device({"teacher", ProcessId(3), 0, 1}, ""), "cpu:3");
  EXPECT_EQ(device({"teacher", ProcessId(4), 0, 2}, ""), "cpu:0") << "each is used once by then";
  EXPECT_EQ(device({"teacher", ProcessId(2), 1, 0}, ""), "cpu:0") << "of the other host";
  EXPECT_EQ(device({"teacher", ProcessId(2), 0, 0}, "cpu:1"), "cpu:1");
  for (const std::string wrong : {"cpu:4", "cuda:0", "core"}) {
    EXPECT_THROW((void)device({"teacher", ProcessId(2), 0, 0}, wrong), JobError) << wrong;
  }
  EXPECT_THROW((void)device({"teacher", ProcessId(2), 0, 0}, "cpu:0,cpu:1"), JobError) << "one too many";
}

/// Returns the error if section `name` sets `least`; empty if the plan is accepted.
std::string refusal(const std::string& name, const std::string& policy = "wavefront") {
  ResolvedJob plan;
  plan.schedule.policy = policy;
  const auto add = [&](const std::string& added, Role role, const std::vector<std::string>& inputs) {
    testing::add_section(plan.graph, added, role, inputs, 2, added == name ? 1 : 0);
    plan.sections.emplace_back();
  };
  add("text", Role::source, {});
  add("teacher", Role::frozen, {"text"});
  add("student", Role::trained, {"text", "teacher"});
  add("judge", Role::frozen, {"student"});
  try {
    check_placements(plan);
    return {};
  } catch (const JobError& error) {
    return error.what();
  }
}

TEST(Placements, are_of_frozen_sections_that_nothing_trained_feeds) {
  const std::string rule = ".replicas: replicas with least and most move between processes, but ";
  EXPECT_EQ(refusal("teacher"), "");
  EXPECT_EQ(refusal("student"), "student" + rule +
                                    "section 'student' is trained; give a number, for example "
                                    "student.replicas = 2");
  EXPECT_EQ(refusal("judge"), "judge" + rule +
                                  "section 'judge' gets inputs or gradients from a trained section; give "
                                  "a number, for example judge.replicas = 2");
  EXPECT_EQ(refusal("teacher", "bulk_synchronous"),
            "teacher" + rule +
                "schedule.policy = \"bulk_synchronous\" fixes the placement of a step; give a number, for "
                "example teacher.replicas = 2");
}

}  // namespace
}  // namespace maestro
