// SPDX-License-Identifier: Apache-2.0
// An edge between two sections with different layouts in a step, planned as in a run:
// corpus -> producer -> consumer; the corpus also sends targets to the consumer, as in the app `split_language_model`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/reshard.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro::bench {

struct SectionLayout {
  std::int64_t replicas = 1;
  Layout layout;
  std::int64_t micro_batch = 1;
};

struct LayoutPair {
  std::string name;
  SectionLayout from;
  SectionLayout to;
};

struct StepSize {
  std::int64_t samples = 24;
  std::int64_t least_tokens = 64;  ///< tokens of the shortest sample; lengths are drawn with a fixed seed
  std::int64_t most_tokens = 128;
  std::int64_t columns = 1024;  ///< columns of the f32 activations
};

/// The pieces of a channel.
struct EdgeStep {
  LayoutPair pair;
  StepSize size;
  SectionGraph graph;
  StepPlan plan;
  Channel channel;           ///< from the producer to the consumer, or gradients back
  double planning_us = 0;    ///< time to plan the step: cut, schedule and the pieces of every edge
  double resharding_us = 0;  ///< median time to plan the pieces of this edge
  std::int64_t least_rows = 0;

  [[nodiscard]] SectionId sender() const { return graph.sender(channel); }
  [[nodiscard]] SectionId receiver() const { return graph.receiver(channel); }
  [[nodiscard]] const GraphEdge& edge() const { return graph.edge(channel.edge); }
  [[nodiscard]] std::size_t row_bytes() const { return edge().row_bytes(); }
  /// Returns a section's micro-batches, in the plan's order.
  [[nodiscard]] std::vector<const MicroBatchPlan*> micro_batches(SectionId section) const;
  /// Returns the pieces of this channel, in the plan's order.
  [[nodiscard]] std::vector<PieceOut> pieces() const;
};

/// Bytes, with headers, and pieces that the step sends over all edges in both directions if every section is in a
/// separate process.
struct StepTraffic {
  std::int64_t bytes = 0;
  std::int64_t pieces = 0;
};

/// Throws JobError if the planner finds no plan.
EdgeStep plan_edge_step(const LayoutPair& pair, const StepSize& size, Direction direction);
StepTraffic traffic_of(const EdgeStep& step);

}  // namespace maestro::bench
