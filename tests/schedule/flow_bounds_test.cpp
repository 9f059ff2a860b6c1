#include "runtime/schedule/flow_bounds.hpp"

#include <gtest/gtest.h>

namespace maestro {
namespace {

struct Part {
  const char* name;
  Mode mode;
  std::int64_t micro_batch;
  std::int64_t replicas = 1;
};

/// A chain: every section reads the one before it.
SectionGraph chain(const std::vector<Part>& parts) {
  SectionGraph graph;
  for (std::size_t at = 0; at < parts.size(); ++at) {
    GraphNode node;
    node.name = parts[at].name;
    node.mode = parts[at].mode;
    node.micro_batch = parts[at].micro_batch;
    node.replicas = parts[at].replicas;
    if (at > 0) node.ports.inputs.push_back({"in", DType::f32, 1, true, false});
    node.ports.outputs.push_back({"out", DType::f32, 1, true, false});
    graph.add(node);
    if (at > 0) graph.connect(parts[at - 1].name, "out", parts[at].name, "in");
  }
  return graph;
}

constexpr Mode frozen = Mode::forward_only;
constexpr Mode trained = Mode::forward_backward;

TEST(FlowBounds, sections_that_cut_alike_need_one_micro_batch_each) {
  for (const FlowBounds& bound : flow_bounds(chain({{"teacher", frozen, 4}, {"student", trained, 4}}), 16, 16)) {
    EXPECT_EQ(bound.in_flight, 1);
    EXPECT_EQ(bound.buffers, 1);
  }
}

TEST(FlowBounds, a_consumer_of_larger_micro_batches_needs_several_of_its_producer) {  // FB-1, FB-2
  const auto bounds = flow_bounds(chain({{"encoder", trained, 2}, {"decoder", trained, 8}}), 16, 0);
  EXPECT_EQ(bounds[0].in_flight, 4);
  EXPECT_EQ(bounds[0].buffers, 4);
  EXPECT_EQ(bounds[1].in_flight, 1);
}

TEST(FlowBounds, a_forward_only_producer_keeps_buffers_but_nothing_in_flight) {  // FB-1, FB-2
  const auto bounds = flow_bounds(chain({{"teacher", frozen, 2}, {"student", trained, 8}}), 16, 0);
  EXPECT_EQ(bounds[0].in_flight, 1);
  EXPECT_EQ(bounds[0].buffers, 4);
}

TEST(FlowBounds, gradients_of_small_micro_batches_are_held_until_a_large_one_is_whole) {  // FB-2
  const auto bounds = flow_bounds(chain({{"encoder", trained, 8}, {"decoder", trained, 2}}), 16, 0);
  EXPECT_EQ(bounds[0].in_flight, 1);
  EXPECT_EQ(bounds[1].buffers, 4);
}

TEST(FlowBounds, cuts_that_do_not_align_need_one_more) {  // FB-1: samples 3..5 touch 2..3 and 4..5
  EXPECT_EQ(flow_bounds(chain({{"encoder", trained, 2}, {"decoder", trained, 3}}), 12, 0)[0].in_flight, 2);
  EXPECT_EQ(flow_bounds(chain({{"encoder", trained, 3}, {"decoder", trained, 4}}), 12, 0)[0].in_flight, 2);
}

TEST(FlowBounds, replicas_share_what_a_trained_section_holds_but_one_may_get_all_of_a_forward_only_one) {
  EXPECT_EQ(flow_bounds(chain({{"encoder", trained, 1, 2}, {"decoder", trained, 4}}), 16, 0)[0].in_flight, 2);
  EXPECT_EQ(flow_bounds(chain({{"teacher", frozen, 1, 2}, {"student", trained, 4}}), 16, 0)[0].buffers, 4);
}

TEST(FlowBounds, a_batch_bounds_what_is_needed_of_it) {
  EXPECT_EQ(flow_bounds(chain({{"encoder", trained, 1}, {"decoder", trained, 8}}), 3, 0)[0].in_flight, 3);
  const auto evaluated = flow_bounds(chain({{"encoder", trained, 1}, {"decoder", trained, 8}}), 3, 20);
  EXPECT_EQ(evaluated[0].in_flight, 3);  // evaluation keeps nothing in flight
  EXPECT_EQ(evaluated[0].buffers, 8);
}

TEST(FlowBounds, needs_add_up_along_a_chain) {  // 6 samples of the head need 8 of the middle
  const auto bounds = flow_bounds(chain({{"first", frozen, 1}, {"middle", frozen, 4}, {"head", trained, 6}}), 24, 0);
  EXPECT_EQ(bounds[0].buffers, 8);
}

}  // namespace
}  // namespace maestro
