// SPDX-License-Identifier: Apache-2.0
// Memory sizes at a replica's ports: slots and blocks that are enough for every micro-batch. Pure.
#pragma once

#include <cstdint>

#include "runtime/core/ids.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/flow_bounds.hpp"
#include "runtime/schedule/lane_key.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// Port sizes of one replica. A value; the graph outlives it.
class PortSizes {
 public:
  /// `largest`: the most rows per sample, by axis.
  PortSizes(const SectionGraph& graph, const LaneKey& lane, const SampleRef& largest, const FlowLimits& limits)
      : graph_(&graph),
        section_(lane.section),
        layout_(graph.node(lane.section).layout_of(lane.replica)),
        largest_(largest),
        limits_(limits) {}

  /// Returns the most rows of an axis in a micro-batch.
  [[nodiscard]] std::int64_t max_rows(Axis axis) const;
  /// Returns the sharding of this section's end of an edge.
  [[nodiscard]] Sharding sharding(EdgeId edge) const;
  /// Return a rank's share there: rows, at most, of a micro-batch with `rows` rows, and columns.
  [[nodiscard]] std::int64_t own_rows(EdgeId edge, std::int64_t rows, LayoutRank rank) const;
  [[nodiscard]] std::int64_t most_own_rows(EdgeId edge) const;
  [[nodiscard]] std::int64_t own_columns(EdgeId edge, LayoutRank rank) const;
  /// Returns the bytes of the largest micro-batch's tensor on a rank.
  [[nodiscard]] std::size_t payload(EdgeId edge, LayoutRank rank) const;
  /// Returns the slots of the ring that receives a channel.
  [[nodiscard]] std::int64_t slots(Channel channel) const;
  /// Returns the blocks of the pool that sends a channel.
  [[nodiscard]] std::int64_t blocks(Channel channel) const;

 private:
  [[nodiscard]] const GraphNode& node() const { return graph_->node(section_); }
  const SectionGraph* graph_;
  SectionId section_;
  Layout layout_;
  SampleRef largest_;
  FlowLimits limits_;
};

}  // namespace maestro
