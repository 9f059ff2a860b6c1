// SPDX-License-Identifier: Apache-2.0
// An edge between two sections of different layouts in a step, as planned in a run:
// corpus -> producer -> consumer, with the corpus' targets for the consumer as in the app `split_language_model`.
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
  std::int64_t least_tokens = 64;  ///< of a sample; lengths are drawn up to the most, seed fixed
  std::int64_t most_tokens = 128;
  std::int64_t columns = 1024;  ///< of the activations, f32
};

/// The pieces of a channel.
struct EdgeStep {
  LayoutPair pair;
  StepSize size;
  SectionGraph graph;
  StepPlan plan;
  Channel channel;           ///< from the producer to the consumer, or gradients back
  double planning_us = 0;    ///< of the whole step by the planner: cut, schedule and the pieces of every edge
  double resharding_us = 0;  ///< of the pieces of this edge alone, median
  std::int64_t least_rows = 0;

  [[nodiscard]] SectionId sender() const { return graph.sender(channel); }
  [[nodiscard]] SectionId receiver() const { return graph.receiver(channel); }
  [[nodiscard]] const GraphEdge& edge() const { return graph.edge(channel.edge); }
  [[nodiscard]] std::size_t row_bytes() const { return edge().row_bytes(); }
  /// Micro-batches of a section, in the order of the plan.
  [[nodiscard]] std::vector<const MicroBatchPlan*> micro_batches(SectionId section) const;
  /// Of this channel, in the order of the plan.
  [[nodiscard]] std::vector<PieceOut> pieces() const;
};

/// Bytes that the step sends over all edges and both ways, headers included, when every section is in a process of its
/// own; and the pieces that this takes.
struct StepTraffic {
  std::int64_t bytes = 0;
  std::int64_t pieces = 0;
};

/// Throws JobError when the planner finds no plan.
EdgeStep plan_edge_step(const LayoutPair& pair, const StepSize& size, Direction direction);
StepTraffic traffic_of(const EdgeStep& step);

}  // namespace maestro::bench
