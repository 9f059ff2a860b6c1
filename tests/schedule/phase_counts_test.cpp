// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/phase_counts.hpp"

#include <gtest/gtest.h>

#include "tests/schedule/small_graph.hpp"

namespace maestro {
namespace {

MicroBatchPlan batch(std::uint32_t section, std::uint32_t group, std::uint32_t forward, std::uint32_t backward) {
  MicroBatchPlan plan;
  plan.section = SectionId(section);
  plan.phased = true;
  plan.group = group;
  plan.forward_phase = forward;
  plan.backward_phase = backward;
  return plan;
}

/// Returns a trained "encoder", which awaits gradients, that feeds a trained "decoder", which does not.
SectionGraph two_sections() {
  SectionGraph graph;
  testing::add_section(graph, "text", Role::source, {});
  GraphNode encoder;
  encoder.name = "encoder";
  encoder.ports.outputs.push_back({"out", DType::f32, 1, true});
  GraphNode decoder;
  decoder.name = "decoder";
  decoder.ports.inputs.push_back({"in", DType::f32, 1, true});
  graph.add(encoder);
  graph.add(decoder);
  graph.connect("encoder", "out", "decoder", "in");
  return graph;
}

TEST(PhaseCounts, a_phase_opens_when_the_last_pass_of_the_one_before_has_ended) {  // PH-1
  const SectionGraph graph = two_sections();
  StepPlan plan;
  for (int n = 0; n < 2; ++n) plan.micro_batches.push_back(batch(1, 0, 0, 2));
  plan.micro_batches.push_back(batch(2, 0, 1, 0));
  PhaseCounts phases(graph, plan);
  EXPECT_TRUE(phases.first().empty());  // phase 0 is open from the start
  EXPECT_FALSE(phases.done(0, 0));
  const auto decoder = phases.done(0, 0);
  ASSERT_TRUE(decoder);
  EXPECT_EQ(decoder->phase, 1u);
  EXPECT_EQ(decoder->lanes.size(), 2u);
  const auto encoder = phases.done(0, 1);
  ASSERT_TRUE(encoder);
  EXPECT_EQ(encoder->phase, 2u);
  EXPECT_FALSE(phases.done(0, 2));
  EXPECT_FALSE(phases.done(0, 2));
}

TEST(PhaseCounts, groups_are_counted_apart_and_may_begin_with_a_later_phase) {
  const SectionGraph graph = two_sections();
  StepPlan plan;
  plan.micro_batches = {batch(2, 0, 0, 0), batch(2, 1, 3, 0)};
  PhaseCounts phases(graph, plan);
  const auto first = phases.first();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first.front().group, 1u);
  EXPECT_EQ(first.front().phase, 3u);
  EXPECT_FALSE(phases.done(0, 0));
}

TEST(PhaseCounts, a_plan_of_another_policy_has_none) {
  StepPlan plan;
  plan.micro_batches = {MicroBatchPlan()};
  EXPECT_TRUE(PhaseCounts(two_sections(), plan).first().empty());
}

}  // namespace
}  // namespace maestro
