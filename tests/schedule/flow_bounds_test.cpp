// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/flow_bounds.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

struct Part {
  const char* name;
  Role role;
  std::int64_t micro_batch;
  std::int64_t replicas = 1;
  std::int64_t micro_batch_rows = 0;
};

/// Returns a chain: every section reads its predecessor.
SectionGraph chain(const std::vector<Part>& parts) {
  SectionGraph graph;
  for (std::size_t at = 0; at < parts.size(); ++at) {
    GraphNode node;
    node.name = parts[at].name;
    node.role = parts[at].role;
    node.micro_batch = parts[at].micro_batch;
    node.replicas = parts[at].replicas;
    node.micro_batch_rows = parts[at].micro_batch_rows;
    if (at > 0) node.ports.inputs.push_back({"in", DType::f32, 1, true, false});
    node.ports.outputs.push_back({"out", DType::f32, 1, true, false});
    graph.add(node);
    if (at > 0) graph.connect(parts[at - 1].name, "out", parts[at].name, "in");
  }
  return graph;
}

constexpr Role frozen = Role::frozen;
constexpr Role trained = Role::trained;

std::int64_t in_flight(const std::vector<Part>& parts, std::int64_t samples) {
  return in_flight_bounds(chain(parts), samples)[0];
}

TEST(FlowBounds, sections_that_cut_alike_need_one_micro_batch_each) {  // FB-1
  EXPECT_EQ(in_flight({{"encoder", trained, 4}, {"decoder", trained, 4}}, 16), 1);
}

TEST(FlowBounds, a_consumer_of_larger_micro_batches_needs_several_of_its_producer) {  // FB-1
  const auto bounds = in_flight_bounds(chain({{"encoder", trained, 2}, {"decoder", trained, 8}}), 16);
  EXPECT_EQ(bounds[0], 4);
  EXPECT_EQ(bounds[1], 1);
}

TEST(FlowBounds, a_long_step_needs_no_more_than_one_in_which_all_micro_batches_begin_together_again) {
  const std::vector<Part> parts{{"encoder", trained, 6}, {"projector", trained, 10, 2}, {"decoder", trained, 15}};
  for (const std::int64_t samples : {60, 61, 90, 6000}) {
    EXPECT_EQ(in_flight_bounds(chain(parts), samples), in_flight_bounds(chain(parts), 60)) << samples;
    EXPECT_EQ(planned_slots(chain(parts), EdgeId(0), {1, samples, 0}),
              planned_slots(chain(parts), EdgeId(0), {1, 60, 0}));
  }
}

TEST(FlowBounds, a_forward_only_producer_keeps_nothing_in_flight) {  // FB-1
  EXPECT_EQ(in_flight({{"teacher", frozen, 2}, {"student", trained, 8}}, 16), 1);
}

TEST(FlowBounds, cuts_that_do_not_align_need_one_more) {  // FB-1: samples 3..5 touch 2..3 and 4..5
  EXPECT_EQ(in_flight({{"encoder", trained, 2}, {"decoder", trained, 3}}, 12), 2);
  EXPECT_EQ(in_flight({{"encoder", trained, 3}, {"decoder", trained, 4}}, 12), 2);
}

TEST(FlowBounds, replicas_share_what_a_trained_section_holds) {  // FB-1
  EXPECT_EQ(in_flight({{"encoder", trained, 1, 2}, {"decoder", trained, 4}}, 16), 2);
  EXPECT_EQ(in_flight({{"encoder", trained, 1, 3}, {"decoder", trained, 4}}, 16), 2);  // sizes 2, 1 and 1
}

TEST(FlowBounds, a_batch_bounds_what_is_needed_of_it) {  // FB-1
  EXPECT_EQ(in_flight({{"encoder", trained, 1}, {"decoder", trained, 8}}, 3), 3);
}

TEST(FlowBounds, planned_slots_hold_the_inputs_of_one_micro_batch_beside_what_its_producers_have_for_others) {
  const auto slots = [](std::int64_t producer, std::int64_t consumer, FlowLimits limits) {
    return planned_slots(chain({{"teacher", frozen, producer}, {"student", trained, consumer}}), EdgeId(0), limits);
  };
  EXPECT_EQ(slots(4, 4, {1, 16, 0}), 1);
  EXPECT_EQ(slots(4, 4, {5, 16, 0}), 5);  // the job's setting
  EXPECT_EQ(slots(1, 4, {1, 16, 0}), 4);
  EXPECT_EQ(slots(4, 1, {1, 16, 0}), 4);
  EXPECT_EQ(slots(2, 3, {1, 12, 0}), 3);  // 0-1, 2 and the 3 that comes with it
  EXPECT_EQ(slots(1, 8, {1, 3, 0}), 3);   // the batch has only three samples
  EXPECT_EQ(slots(1, 8, {1, 3, 20}), 8);  // a validation batch has more
}

TEST(FlowBounds, planned_slots_hold_what_a_sibling_with_larger_micro_batches_makes_its_producer_run) {
  SectionGraph graph = chain({{"teacher", frozen, 1}, {"probe", frozen, 6}});
  GraphNode student;
  student.name = "student";
  student.ports.inputs = {{"in", DType::f32, 1, true, false}, {"probe", DType::f32, 1, true, false}};
  graph.add(student);
  graph.connect("teacher", "out", "student", "in");
  graph.connect("probe", "out", "student", "probe");
  EXPECT_EQ(planned_slots(graph, EdgeId(1), {1, 24, 0}), 6);
}

TEST(FlowBounds, send_blocks_cover_waiting_and_taken_outputs_and_never_exceed_a_step) {  // FB-2
  const auto blocks = [](const std::vector<Part>& parts, FlowLimits limits) {
    return send_blocks(chain(parts), SectionId(0), limits);
  };
  EXPECT_EQ(blocks({{"teacher", frozen, 2}, {"student", trained, 8}}, {1, 16, 0}), 9);  // all 8 of a step, plus 1
  EXPECT_EQ(blocks({{"teacher", frozen, 8}, {"student", trained, 8}}, {1, 800, 0}), 1 + 2 + 1);
  EXPECT_EQ(blocks({{"teacher", frozen, 8}, {"student", trained, 8, 2}}, {1, 800, 0}), 2 * (1 + 2) + 1);
}

TEST(FlowBounds, send_blocks_cover_the_outputs_that_a_consumer_holds_until_its_gradients_come) {  // FB-2
  SectionGraph graph = chain({{"teacher", frozen, 8}, {"encoder", trained, 8}, {"decoder", trained, 8}});
  graph.set_max_in_flight(SectionId(1), 5);
  EXPECT_EQ(send_blocks(graph, SectionId(0), {1, 800, 0}), 1 + 5 * 2 + 1);
}

TEST(FlowBounds, a_section_that_awaits_gradients_has_slots_for_backward_passes_out_of_order) {
  SectionGraph graph = chain({{"encoder", trained, 4}, {"decoder", trained, 4}});
  graph.set_max_in_flight(SectionId(0), 3);
  EXPECT_EQ(input_window(graph, SectionId(0), {2, 16, 0}), 12);
  EXPECT_EQ(input_window(graph, SectionId(1), {2, 16, 0}), 2);
  EXPECT_EQ(gradient_blocks(graph, EdgeId(0), {2, 16, 0}), 5);   // all 4 of a step, plus 1
  EXPECT_EQ(gradient_blocks(graph, EdgeId(0), {2, 800, 0}), 7);  // 3 in flight, over at most 2 each
}

TEST(FlowBounds, blocks_and_slots_cover_a_validation_pass_and_sources_have_a_step_and_a_spare) {  // FB-2
  const std::vector<Part> parts{{"data", Role::source, 4}, {"student", trained, 4}};
  EXPECT_EQ(send_blocks(chain(parts), SectionId(0), {1, 16, 0}), 4 + 1);
  EXPECT_EQ(send_blocks(chain(parts), SectionId(0), {1, 16, 32}), 8 + 1);
}

TEST(FlowBounds, slots_behind_a_section_that_follows_its_consumer_hold_all_of_a_step) {
  const std::vector<Part> parts{{"vision", frozen, 1000, 1, 10}, {"llm", trained, 4}};
  EXPECT_EQ(planned_slots(chain(parts), EdgeId(0), {1, 16, 0}), 16 + 4);
  EXPECT_EQ(planned_slots(chain(parts), EdgeId(0), {30, 16, 0}), 30);
}

TEST(FlowBounds, an_input_window_keeps_to_the_slots_that_a_ring_can_have) {
  SectionGraph graph = chain({{"encoder", trained, 4}, {"decoder", trained, 4}});
  graph.set_max_in_flight(SectionId(0), 20);
  EXPECT_EQ(input_window(graph, SectionId(0), {2, 16, 0, 64}), 64);  // not 4 x 20
  graph.set_max_in_flight(SectionId(0), 70);
  EXPECT_EQ(input_window(graph, SectionId(0), {2, 16, 0, 64}), 70);  // every micro-batch in flight keeps its input
}

}  // namespace
}  // namespace maestro
