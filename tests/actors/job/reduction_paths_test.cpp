// SPDX-License-Identifier: Apache-2.0
#include "actors/job/reduction_paths.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maestro {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A frozen teacher and a trained student with two replicas.
class ReductionPaths : public ::testing::Test {
 protected:
  ReductionPaths() {
    GraphNode teacher;
    teacher.name = "teacher";
    teacher.role = Role::frozen;
    teacher.replicas = 2;
    graph_.add(teacher);
    GraphNode student;
    student.name = "student";
    student.role = Role::trained;
    student.replicas = 2;
    graph_.add(student);
  }
  static std::vector<ReplicaPlacement> student_on(const std::string& first, const std::string& second,
                                                  std::uint32_t second_host = 0) {
    return {{SectionId(0), ReplicaIndex(0), ProcessId(0), {{DeviceId::Kind::cuda, 0}}},
            {SectionId(0), ReplicaIndex(1), ProcessId(0), {{DeviceId::Kind::cuda, 1}}},
            {SectionId(1), ReplicaIndex(0), ProcessId(0), {*parse_device(first)}},
            {SectionId(1), ReplicaIndex(1), ProcessId(1), {*parse_device(second)}, second_host}};
  }
  [[nodiscard]] bool grouped(const std::vector<ReplicaPlacement>& places) const {
    return on_devices_of_their_own(places, replicas_of(graph_, SectionId(1)), LayoutRank(0));
  }
  SectionGraph graph_;
};

TEST_F(ReductionPaths, members_form_a_group_when_each_has_a_cuda_device_of_its_own) {
  EXPECT_TRUE(grouped(student_on("cuda:0", "cuda:1")));
  EXPECT_TRUE(grouped(student_on("cuda:0", "cuda:0", 1))) << "of two hosts";
  EXPECT_FALSE(grouped(student_on("cuda:0", "cuda:0"))) << "NCCL takes a device once";
  EXPECT_FALSE(grouped(student_on("cuda:0", "cpu:1")));
  EXPECT_FALSE(grouped(student_on("cpu:0", "cpu:1")));
}

TEST_F(ReductionPaths, a_rank_that_a_member_lacks_forms_none) {
  const auto places = student_on("cuda:0", "cuda:1");
  EXPECT_FALSE(on_devices_of_their_own(places, replicas_of(graph_, SectionId(1)), LayoutRank(1)));
  EXPECT_FALSE(on_devices_of_their_own(places, {}, LayoutRank(0)));
}

TEST_F(ReductionPaths, the_header_says_how_trained_sections_add_their_gradients) {
  EXPECT_THAT(describe_reductions(graph_, student_on("cuda:0", "cuda:1"), false),
              ElementsAre("student: gradients of 2 replicas by NCCL"));
  EXPECT_THAT(describe_reductions(graph_, student_on("cuda:0", "cuda:1"), true),
              ElementsAre("student: gradients of 2 replicas in host memory"));
  EXPECT_THAT(describe_reductions(graph_, student_on("cuda:0", "cpu:0"), false),
              ElementsAre("student: gradients of 2 replicas in host memory"));
  EXPECT_THAT(describe_reductions(graph_, student_on("cpu:0", "cpu:1"), false), IsEmpty());
}

}  // namespace
}  // namespace maestro
