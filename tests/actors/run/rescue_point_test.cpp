// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/rescue_point.hpp"

#include <gtest/gtest.h>

#include "tests/schedule/small_graph.hpp"

namespace maestro::testing {
namespace {

const SectionId student(2), plain(3);

/// Returns a graph with a text, a teacher, and two students that exchange no gradients.
SectionGraph two_students() {
  SectionGraph graph = distillation_graph();
  add_section(graph, "plain", Role::trained, {"text"});
  return graph;
}

StandsStill still(SectionId section, std::uint64_t step, bool whole = true) {
  return {section, ReplicaIndex(0), StepId(step), whole};
}

TEST(RescuePoint, is_where_every_trained_section_has_a_whole_replica) {
  const std::vector standing = {still(student, 7, false), still(student, 7), still(plain, 7)};
  const auto point = rescue_point(two_students(), false, StepId(7), standing);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->writers, (std::map<SectionId, std::size_t>{{student, 1}, {plain, 2}}));
  EXPECT_TRUE(point->ahead.empty());
  EXPECT_FALSE(rescue_point(two_students(), false, StepId(7), std::span(standing).first(2)));
  EXPECT_FALSE(rescue_point(two_students(), false, StepId(8), standing)) << "older than what is finished";
}

TEST(RescuePoint, sections_that_nothing_joins_may_be_ahead) {  // RP-2
  const std::vector standing = {still(student, 7), still(plain, 9)};
  const auto point = rescue_point(two_students(), false, StepId(7), standing);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->ahead, (std::map<SectionId, StepId>{{plain, StepId(9)}}));
}

TEST(RescuePoint, joined_sections_agree) {  // RP-1
  const std::vector apart = {still(student, 7), still(plain, 8)};
  EXPECT_FALSE(rescue_point(two_students(), true, StepId(7), apart)) << "one norm clips both";
  const std::vector both = {still(student, 8), still(student, 7), still(plain, 7)};
  const auto point = rescue_point(two_students(), true, StepId(7), both);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->writers, (std::map<SectionId, std::size_t>{{student, 1}, {plain, 2}}));
}

TEST(RescuePoint, what_is_read_by_others_is_not_ahead) {  // RP-2
  SectionGraph graph = two_students();
  add_section(graph, "judge", Role::frozen, {"plain"});
  EXPECT_FALSE(rescue_point(graph, false, StepId(7), std::vector{still(student, 7), still(plain, 9)}));
  EXPECT_TRUE(rescue_point(graph, false, StepId(7), std::vector{still(student, 9), still(plain, 7)}));
  EXPECT_TRUE(rescue_point(graph, false, StepId(7), std::vector{still(student, 7), still(plain, 7)}));
}

}  // namespace
}  // namespace maestro::testing
