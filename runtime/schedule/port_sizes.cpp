// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/port_sizes.hpp"

#include <algorithm>

namespace maestro {

std::int64_t PortSizes::max_rows(Axis axis) const {
  const std::int64_t by_count = node().micro_batch * largest_.rows(axis);
  if (node().micro_batch_rows == 0) return by_count;
  // Visual rows and answers have a position each; visual rows are as many as the patches at most unless the corpus
  // declares more.
  const Axis own = node().axis();
  const std::int64_t most_visual = own == Axis::other_patches ? largest_.other_visual
                                   : own == Axis::frames      ? largest_.heard
                                                              : largest_.visual;
  const bool bounded = axis == own || (axis == Axis::answers && counts_tokens(own)) ||
                       (counts_visual(axis) && (!counts_patches(own) || most_visual <= largest_.rows(own)));
  const std::int64_t bound = std::max(node().micro_batch_rows, largest_.rows(node().axis()));
  return bounded ? std::min(by_count, bound) : by_count;
}

Sharding PortSizes::sharding(EdgeId edge) const {
  const GraphEdge& joined = graph_->edge(edge);
  return joined.to == section_ ? joined.to_sharding : joined.from_sharding;
}

std::int64_t PortSizes::own_rows(EdgeId edge, std::int64_t rows, LayoutRank rank) const {
  return layout_.rows(sharding(edge), rows, rank.value()).count;
}

std::int64_t PortSizes::most_own_rows(EdgeId edge) const {
  const std::int64_t rows = max_rows(graph_->edge(edge).axis);
  const auto up = [](std::int64_t value, std::int64_t by) { return (value + by - 1) / by; };
  if (sharding(edge) == Sharding::replicated) return rows;
  const std::int64_t part = up(rows, layout_.context);
  return sharding(edge) == Sharding::rank_rows ? up(part, layout_.tensor) : part;
}

std::int64_t PortSizes::own_columns(EdgeId edge, LayoutRank rank) const {
  return layout_.columns(sharding(edge), graph_->edge(edge).columns, rank.value()).count;
}

std::size_t PortSizes::payload(EdgeId edge, LayoutRank rank) const {
  return static_cast<std::size_t>(most_own_rows(edge) * own_columns(edge, rank)) * size_of(graph_->edge(edge).dtype);
}

std::int64_t PortSizes::slots(Channel channel) const {
  // Gradients come back for every micro-batch in flight, so their ring needs no other bound.
  return channel.gradient() ? node().max_in_flight : input_window(*graph_, section_, limits_);
}

std::int64_t PortSizes::blocks(Channel channel) const {
  return channel.gradient() ? gradient_blocks(*graph_, channel.edge, limits_) : send_blocks(*graph_, section_, limits_);
}

}  // namespace maestro
