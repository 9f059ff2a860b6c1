// SPDX-License-Identifier: Apache-2.0
#include "actors/plan/seats.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

const SectionId source(0), teacher(1), student(2);

SectionGraph distillation() {
  SectionGraph graph;
  const auto add = [&](const std::string& name, Role role, const std::vector<std::string>& inputs) {
    GraphNode node;
    node.name = name;
    node.role = role;
    for (const std::string& input : inputs) node.ports.inputs.push_back({input, DType::f32, 1});
    node.ports.outputs.push_back({"out", DType::f32, 1});
    graph.add(std::move(node));
    for (const std::string& input : inputs) graph.connect(input, "out", name, input);
  };
  add("text", Role::source, {});
  add("teacher", Role::frozen, {"text"});
  add("student", Role::trained, {"text", "teacher"});
  return graph;
}

Seat seat(SectionId section, std::uint32_t replica, std::uint32_t process) {
  return {section, ReplicaIndex(replica), ProcessId(process)};
}

TEST(Seats, go_to_the_process_with_the_fewest_seats_of_the_section) {
  const std::vector<Seat> seats = {seat(source, 0, 0),  seat(teacher, 0, 1), seat(teacher, 1, 1), seat(teacher, 2, 2),
                                   seat(teacher, 3, 3), seat(teacher, 4, 3), seat(student, 0, 2)};
  const auto moved = adopt_seats(distillation(), seats, ProcessId(3));
  ASSERT_TRUE(moved) << moved.error().message;
  EXPECT_EQ(*moved, (std::vector<Seat>{seat(teacher, 3, 2), seat(teacher, 4, 1)}));
}

TEST(Seats, of_a_process_with_a_trained_section_stay) {
  const std::vector<Seat> seats = {seat(teacher, 0, 1), seat(teacher, 1, 2), seat(student, 0, 2), seat(student, 1, 1)};
  const auto moved = adopt_seats(distillation(), seats, ProcessId(2));
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().message, "section 'student' has a state of its own");
}

TEST(Seats, need_another_process_with_the_section) {
  const std::vector<Seat> seats = {seat(source, 0, 0), seat(teacher, 0, 1), seat(teacher, 1, 1), seat(student, 0, 2)};
  const auto moved = adopt_seats(distillation(), seats, ProcessId(1));
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().message, "no other process has section 'teacher'");
}

TEST(Seats, stay_where_a_gpu_is_at_an_end_of_their_edges) {
  const auto cpu = [](SectionId section) {
    return ReplicaPlacement{section, ReplicaIndex(0), ProcessId(0), {DeviceId{DeviceId::Kind::cpu, 0}}, 0};
  };
  std::vector<ReplicaPlacement> places = {cpu(source), cpu(teacher), cpu(student)};
  EXPECT_EQ(why_seats_stay(distillation(), places), "");
  places[2].devices = {DeviceId{DeviceId::Kind::cuda, 0}};
  EXPECT_EQ(why_seats_stay(distillation(), places), "section 'student' is on a GPU");
}

}  // namespace
}  // namespace maestro
