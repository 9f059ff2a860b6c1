// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/flow_bounds.hpp"

#include <algorithm>
#include <numeric>

namespace maestro {

namespace {

std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

/// Returns the number of samples after which the micro-batches of all sections begin together again. The needs of
/// passes repeat with this period, except at the end of a step, where they are smaller. Nothing needs the end of a
/// source's micro-batch.
std::int64_t common_period(const SectionGraph& graph, std::int64_t samples) {
  std::int64_t period = 1;
  for (const GraphNode& node : graph.nodes()) {
    if (!node.follows_consumer() && node.plays_in_steps())
      period = std::min(samples, std::lcm(period, node.micro_batch));
  }
  return period;
}

/// Passes that must run so that the micro-batch with a given sample can retire.
class Needs {
 public:
  Needs(const SectionGraph& graph, std::int64_t samples)
      : graph_(&graph), order_(graph.topological()), samples_(samples) {}

  /// Returns, per section, the end of the samples whose forward passes are needed before the micro-batches of `bases`
  /// that hold `sample` can retire.
  [[nodiscard]] std::vector<std::int64_t> forward_ends(const std::vector<SectionId>& bases, std::int64_t sample) const {
    std::vector<std::int64_t> retire(order_.size(), 0);
    for (const SectionId base : bases) retire[base.value()] = round_up(base, sample + 1);
    for (const SectionId section : order_) {
      for (const EdgeId id : graph_->outputs(section)) {
        const GraphEdge& edge = graph_->edge(id);
        if (!graph_->splits_passes(section)) continue;
        auto& consumer = retire[edge.to.value()];
        consumer = std::max(consumer, round_up(edge.to, retire[section.value()]));
      }
    }
    std::vector<std::int64_t> forward = retire;
    for (auto section = order_.rbegin(); section != order_.rend(); ++section) {
      for (const EdgeId id : graph_->outputs(*section)) {
        auto& producer = forward[section->value()];
        producer = std::max(producer, round_up(*section, forward[graph_->edge(id).to.value()]));
      }
    }
    return forward;
  }

 private:
  [[nodiscard]] std::int64_t round_up(SectionId section, std::int64_t end) const {
    // A micro-batch of a chosen section may hold samples from any part of the step.
    if (end > 0 && !graph_->node(section).sources.all()) return samples_;
    if (graph_->node(section).follows_consumer()) return std::min(samples_, end);  // MC-4
    const std::int64_t size = graph_->node(section).micro_batch;
    return std::min(samples_, divide_up(end, size) * size);
  }

  const SectionGraph* graph_;
  std::vector<SectionId> order_;
  std::int64_t samples_;
};

/// Returns the most micro-batches that a section has in a step.
std::int64_t most_batches(const GraphNode& node, const FlowLimits& limits) {
  const std::int64_t samples = std::max(limits.train_samples, limits.evaluate_samples);
  return node.follows_consumer() ? samples : divide_up(samples, node.micro_batch);
}

/// Returns the most micro-batches of `other` that overlap a micro-batch of `node`, if both cut the same samples in the
/// same order.
std::int64_t overlaps(const GraphNode& node, const GraphNode& other, const FlowLimits& limits) {
  if (node.follows_consumer() || other.follows_consumer()) return most_batches(other, limits);
  return std::min(divide_up(node.micro_batch - 1, other.micro_batch) + 1, most_batches(other, limits));
}

}  // namespace

std::vector<std::int64_t> in_flight_bounds(const SectionGraph& graph, std::int64_t samples) {
  std::vector<std::int64_t> bounds(graph.nodes().size(), 1);
  const Needs needs(graph, samples);
  const std::int64_t period = common_period(graph, samples);
  std::vector<SectionId> waiting;
  for (std::uint32_t index = 0; index < bounds.size(); ++index) {
    if (graph.splits_passes(SectionId(index))) waiting.emplace_back(index);
  }
  for (const SectionId base : waiting) {
    if (graph.node(base).follows_consumer()) continue;
    for (std::int64_t start = 0; start < period; start += graph.node(base).micro_batch) {
      const std::vector<std::int64_t> ends = needs.forward_ends({base}, start);
      for (const SectionId section : waiting) {
        const GraphNode& node = graph.node(section);
        if (node.follows_consumer()) continue;
        const std::int64_t first = divide_up(start, node.micro_batch);
        const std::int64_t batches = divide_up(ends[section.value()], node.micro_batch) - first;
        auto& bound = bounds[section.value()];
        bound = std::max(bound, divide_up(std::max<std::int64_t>(batches, 0), node.replicas));
      }
    }
  }
  return bounds;
}

std::int64_t planned_slots(const SectionGraph& graph, EdgeId id, const FlowLimits& limits) {
  const SectionId from = graph.edge(id).from;
  const SectionId to = graph.edge(id).to;
  const GraphNode& producer = graph.node(from);
  const GraphNode& consumer = graph.node(to);
  if (producer.role == Role::source) return limits.slots;  // a source is in no plan
  if (producer.follows_consumer() || consumer.follows_consumer()) {
    return std::max(limits.slots, most_batches(producer, limits) + most_batches(consumer, limits));
  }
  std::vector<SectionId> all;
  for (std::uint32_t index = 0; index < graph.nodes().size(); ++index) all.emplace_back(index);
  std::int64_t slots = limits.slots;
  const std::int64_t samples = std::max(limits.train_samples, limits.evaluate_samples);
  const Needs needs(graph, samples);
  for (std::int64_t start = 0; start < common_period(graph, samples); ++start) {
    const bool boundary = std::ranges::any_of(graph.nodes(), [&](const GraphNode& node) {
      return node.plays_in_steps() && !node.follows_consumer() && start % node.micro_batch == 0;
    });
    if (!boundary) continue;
    // Sample up to which the producer may have to run before the consumer's micro-batch with this sample can run.
    const std::int64_t end = needs.forward_ends(all, start)[from.value()];
    const std::int64_t begin = start / consumer.micro_batch * consumer.micro_batch;
    std::int64_t links = 1;
    for (std::int64_t at = begin + 1; at < end; ++at) {
      links += at % producer.micro_batch == 0 || at % consumer.micro_batch == 0 ? 1 : 0;
    }
    slots = std::max(slots, links);
  }
  return slots;
}

std::int64_t input_window(const SectionGraph& graph, SectionId section, const FlowLimits& limits) {
  // Plans seldom run backward passes in another order than forward passes; the factor leaves room for such plans.
  constexpr std::int64_t out_of_order = 4;
  if (!graph.splits_passes(section)) return limits.slots;
  const std::int64_t in_flight = graph.node(section).max_in_flight;
  return std::max({limits.slots, in_flight, std::min(limits.most_slots, out_of_order * in_flight)});
}

std::int64_t send_blocks(const SectionGraph& graph, SectionId section, const FlowLimits& limits) {
  const GraphNode& node = graph.node(section);
  const std::int64_t all = most_batches(node, limits);
  if (node.role == Role::source) return all + 1;  // sources are in no plan
  std::int64_t held = 0;
  for (const EdgeId edge : graph.outputs(section)) {
    const SectionId to = graph.edge(edge).to;
    // Outputs that wait for a consumer, and outputs that a consumer has taken and not retired.
    const std::int64_t taken = graph.splits_passes(to) ? graph.node(to).max_in_flight : 1;
    const std::int64_t inputs = overlaps(graph.node(to), node, limits);
    held += graph.node(to).replicas * (planned_slots(graph, edge, limits) + taken * inputs);
  }
  return std::max(node.max_in_flight, std::min(held, all)) + 1;
}

std::int64_t gradient_blocks(const SectionGraph& graph, EdgeId edge, const FlowLimits& limits) {
  const GraphNode& producer = graph.node(graph.edge(edge).from);
  const GraphNode& consumer = graph.node(graph.edge(edge).to);
  // Every micro-batch in flight keeps the gradients of its rows until all of them have arrived.
  const std::int64_t kept = producer.replicas * producer.max_in_flight * overlaps(producer, consumer, limits);
  return std::min(kept, most_batches(consumer, limits)) + 1;
}

}  // namespace maestro
