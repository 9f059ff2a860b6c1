// SPDX-License-Identifier: Apache-2.0
#include "actors/run/coordinator/norm_totals.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace maestro {
namespace {

constexpr SectionId encoder{0};
constexpr SectionId first_stage{1};
constexpr SectionId last_stage{2};
constexpr SectionId teacher{3};

/// A trained encoder, a trained decoder with two stages, and a frozen teacher.
class NormTotalsTest : public ::testing::Test {
 protected:
  NormTotalsTest() {
    add("encoder", "encoder", Role::trained);
    add("decoder/0", "decoder", Role::trained);
    add("decoder/1", "decoder", Role::trained);
    add("teacher", "teacher", Role::frozen);
  }
  void add(const char* name, const char* section, Role role) {
    GraphNode node;
    node.name = name;
    node.section = section;
    node.role = role;
    graph_.add(node);
  }
  static NormReport report(SectionId section, double part, std::uint32_t replica = 0, std::uint32_t reporters = 1,
                           std::uint64_t step = 1) {
    return {section, ReplicaIndex(replica), reporters, StepId(step), part};
  }
  static bool all(SectionId /*section*/) { return true; }

  SectionGraph graph_;
};

TEST_F(NormTotalsTest, a_section_alone_is_answered_when_all_its_replicas_have_reported) {  // NT-2
  NormTotals norms(graph_, false, false);
  EXPECT_TRUE(norms.add(report(encoder, 1, 0, 2), all).empty());
  const auto answers = norms.add(report(encoder, 2, 1, 2), all);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].first, encoder);
  EXPECT_EQ(answers[0].second.step, StepId(1));
  EXPECT_EQ(answers[0].second.sum_of_squares, 3);
  EXPECT_EQ(answers[0].second.sum_of_squares_of_section, 3);
}

TEST_F(NormTotalsTest, stages_of_a_section_are_clipped_by_one_norm) {  // NT-2
  NormTotals norms(graph_, false, false);
  EXPECT_TRUE(norms.add(report(last_stage, 4), all).empty());
  const auto answers = norms.add(report(first_stage, 2), all);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].first, first_stage);
  EXPECT_EQ(answers[1].first, last_stage);
  for (const auto& [section, total] : answers) {
    EXPECT_EQ(total.sum_of_squares, 6);
    EXPECT_EQ(total.sum_of_squares_of_section, 6);
  }
}

TEST_F(NormTotalsTest, sections_may_be_answered_together_and_clipped_apart) {  // NT-2
  NormTotals norms(graph_, false, true);
  EXPECT_TRUE(norms.add(report(encoder, 1), all).empty());
  EXPECT_TRUE(norms.add(report(first_stage, 2), all).empty());
  const auto answers = norms.add(report(last_stage, 4), all);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0].second.sum_of_squares, 1);
  EXPECT_EQ(answers[1].second.sum_of_squares, 6);
  EXPECT_EQ(answers[2].second.sum_of_squares, 6);
}

TEST_F(NormTotalsTest, a_global_norm_waits_for_all_trained_sections_with_work_in_the_step) {  // NT-2
  NormTotals norms(graph_, true, true);
  EXPECT_TRUE(norms.add(report(first_stage, 2), all).empty());
  EXPECT_TRUE(norms.add(report(last_stage, 4), all).empty());
  const auto answers = norms.add(report(encoder, 1), all);
  ASSERT_EQ(answers.size(), 3u) << "the frozen teacher takes no part";
  EXPECT_EQ(answers[0].second.sum_of_squares_of_section, 1);
  EXPECT_EQ(answers[2].second.sum_of_squares_of_section, 6);
  for (const auto& [section, total] : answers) EXPECT_EQ(total.sum_of_squares, 7);

  const auto no_encoder = [](SectionId section) { return section != encoder; };
  EXPECT_TRUE(norms.add(report(first_stage, 2, 0, 1, 2), no_encoder).empty());
  EXPECT_EQ(norms.add(report(last_stage, 4, 0, 1, 2), no_encoder).size(), 2u);
}

TEST_F(NormTotalsTest, totals_do_not_depend_on_the_order_of_reports) {  // NT-1
  std::array<std::uint32_t, 3> order{0, 1, 2};
  const std::array<double, 3> parts{1e17, -1e17, 1};  // added in another order, the 1 is lost
  do {
    NormTotals norms(graph_, false, false);
    NormTotals::Answers answers;
    for (const std::uint32_t replica : order) answers = norms.add(report(encoder, parts[replica], replica, 3), all);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].second.sum_of_squares, 1);
  } while (std::ranges::next_permutation(order).found);
}

TEST_F(NormTotalsTest, steps_are_counted_apart) {
  NormTotals norms(graph_, false, false);
  EXPECT_TRUE(norms.add(report(encoder, 1, 0, 2, 1), all).empty());
  EXPECT_TRUE(norms.add(report(encoder, 8, 0, 2, 2), all).empty());
  EXPECT_EQ(norms.add(report(encoder, 8, 1, 2, 2), all)[0].second.sum_of_squares, 16);
  EXPECT_EQ(norms.add(report(encoder, 2, 1, 2, 1), all)[0].second.sum_of_squares, 3);
}

}  // namespace
}  // namespace maestro
