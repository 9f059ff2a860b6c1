// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/plan_drift.hpp"

#include <gtest/gtest.h>

#include "actors/run/coordinator/measured_steps.hpp"

namespace maestro {
namespace {

class PlanDriftTest : public ::testing::Test {
 protected:
  PlanDriftTest() {
    for (const char* name : {"teacher", "student"}) {
      GraphNode node;
      node.name = name;
      node.replicas = 2;
      graph_.add(node);
    }
    predicted_.predicted_step_ms = 100;
    predicted_.predicted_passes_ms = {{"teacher", 40}, {"student", 60}};
  }
  void step(double ms, double teacher_ms, double student_ms) {
    MeasuredStep& step = steps_.emplace_back();
    step.step = StepId(steps_.size());
    step.ms = ms;
    for (const std::uint32_t replica : {0u, 1u}) {  // replica 0 has more work
      const double more = replica == 0 ? 5 : -5;
      step.lanes[{SectionId(0), ReplicaIndex(replica)}].times.busy_ms = teacher_ms + more;
      step.lanes[{SectionId(1), ReplicaIndex(replica)}].times.busy_ms = student_ms + more;
    }
  }
  [[nodiscard]] PlanDrift drift() const { return drift_from(predicted_, graph_, steps_); }

  SectionGraph graph_;
  PlanConfig predicted_;
  std::deque<MeasuredStep> steps_;
};

TEST_F(PlanDriftTest, a_tenth_is_no_difference) {
  for (int at = 0; at < 16; ++at) step(109.9, 40, 69);
  EXPECT_FALSE(drift().is_off());
  steps_.clear();
  for (int at = 0; at < 16; ++at) step(90.1, 40, 60);
  EXPECT_FALSE(drift().is_off());
}

TEST_F(PlanDriftTest, the_section_whose_passes_take_most_longer_is_named) {  // DV-1
  for (int at = 0; at < 16; ++at) step(131, 44, 80.1);
  EXPECT_TRUE(drift().is_off());
  EXPECT_EQ(drift().section, "student");
  EXPECT_EQ(text_of(drift()),
            "steps take 131.0 ms, 31% above the 100.0 ms of [plan]; passes of student take 80.1 ms instead of 60.0 ms: "
            "choose the layout again on this machine (maestro plan JOB.toml --vary all)");
}

TEST_F(PlanDriftTest, of_faster_steps_the_section_is_named_that_takes_less) {  // DV-1
  for (int at = 0; at < 16; ++at) step(60, 20, 65);
  EXPECT_TRUE(drift().is_off());
  EXPECT_EQ(drift().section, "teacher");
  EXPECT_NE(text_of(drift()).find("40% below the 100.0 ms of [plan]; passes of teacher take 20.0 ms instead of 40.0"),
            std::string::npos)
      << text_of(drift());
}

TEST_F(PlanDriftTest, no_section_is_named_where_all_take_their_time) {  // DV-1
  for (int at = 0; at < 16; ++at) step(150, 41, 61);
  EXPECT_TRUE(drift().is_off());
  EXPECT_EQ(drift().section, "");
  EXPECT_NE(text_of(drift()).find("no section's passes explain it"), std::string::npos);
}

TEST_F(PlanDriftTest, medians_of_the_last_sixteen_steps_count) {
  for (int at = 0; at < 30; ++at) step(500, 40, 400);
  for (int at = 0; at < 16; ++at) step(at < 5 ? 1000 : 101, 40, at < 5 ? 900 : 60);
  EXPECT_FALSE(drift().is_off());
  EXPECT_EQ(drift().measured_ms, 101);
}

}  // namespace
}  // namespace maestro
