#include "runtime/schedule/flow_bounds.hpp"

#include <algorithm>
#include <set>

namespace maestro {

namespace {

std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

/// Sections before their consumers.
std::vector<SectionId> topological(const SectionGraph& graph) {
  std::vector<std::size_t> waiting(graph.nodes().size());
  for (const GraphEdge& edge : graph.edges()) ++waiting[edge.to.value()];
  std::vector<SectionId> order;
  for (std::uint32_t index = 0; index < waiting.size(); ++index) {
    if (waiting[index] == 0) order.emplace_back(index);
  }
  for (std::size_t at = 0; at < order.size(); ++at) {
    for (const EdgeId edge : graph.outputs(order[at])) {
      const SectionId to = graph.edge(edge).to;
      if (--waiting[to.value()] == 0) order.push_back(to);
    }
  }
  return order;
}

/// What has to happen so that the micro-batch that holds one sample can retire.
class Needs {
 public:
  Needs(const SectionGraph& graph, std::int64_t samples, bool gradients)
      : graph_(&graph), order_(topological(graph)), samples_(samples), gradients_(gradients) {}

  /// Per section, the end of the samples whose forward passes are needed before the micro-batches of `bases` that hold
  /// `sample` can retire.
  [[nodiscard]] std::vector<std::int64_t> forward_ends(const std::vector<SectionId>& bases, std::int64_t sample) const {
    std::vector<std::int64_t> retire(order_.size(), 0);
    for (const SectionId base : bases) retire[base.value()] = round_up(base, sample + 1);
    for (const SectionId section : order_) {
      for (const EdgeId id : graph_->outputs(section)) {
        const GraphEdge& edge = graph_->edge(id);
        if (!edge.gradient || !gradients_) continue;
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
    const std::int64_t size = graph_->node(section).micro_batch;
    return std::min(samples_, divide_up(end, size) * size);
  }

  const SectionGraph* graph_;
  std::vector<SectionId> order_;
  std::int64_t samples_;
  bool gradients_;
};

std::set<std::int64_t> starts(const SectionGraph& graph, const std::vector<SectionId>& sections, std::int64_t samples) {
  std::set<std::int64_t> found;
  for (const SectionId section : sections) {
    for (std::int64_t at = 0; at < samples; at += graph.node(section).micro_batch) found.insert(at);
  }
  return found;
}

void raise_in_flight(const SectionGraph& graph, std::int64_t samples, std::vector<FlowBounds>& bounds) {
  const Needs needs(graph, samples, true);
  std::vector<SectionId> waiting;
  for (std::uint32_t index = 0; index < bounds.size(); ++index) {
    if (graph.awaits_gradient(SectionId(index))) waiting.emplace_back(index);
  }
  for (const SectionId base : waiting) {
    for (const std::int64_t start : starts(graph, {base}, samples)) {
      const std::vector<std::int64_t> ends = needs.forward_ends({base}, start);
      for (const SectionId section : waiting) {
        const GraphNode& node = graph.node(section);
        const std::int64_t first = divide_up(start, node.micro_batch);
        const std::int64_t batches = divide_up(ends[section.value()], node.micro_batch) - first;
        auto& bound = bounds[section.value()].in_flight;  // trained sections go round their replicas
        bound = std::max(bound, divide_up(std::max<std::int64_t>(batches, 0), node.replicas));
      }
    }
  }
}

void raise_buffers(const SectionGraph& graph, std::int64_t samples, bool gradients, std::vector<FlowBounds>& bounds) {
  const Needs needs(graph, samples, gradients);
  std::vector<SectionId> all;
  for (std::uint32_t index = 0; index < bounds.size(); ++index) all.emplace_back(index);
  for (const std::int64_t start : starts(graph, all, samples)) {
    const std::vector<std::int64_t> ends = needs.forward_ends(all, start);
    for (const SectionId section : all) {
      const GraphNode& node = graph.node(section);
      const std::int64_t batches = divide_up(ends[section.value()], node.micro_batch) - start / node.micro_batch;
      // The planner may give all micro-batches of a forward-only section to one replica.
      const std::int64_t sharing = node.mode == Mode::forward_backward ? node.replicas : 1;
      auto& bound = bounds[section.value()].buffers;
      bound = std::max(bound, divide_up(batches, sharing));
    }
  }
}

}  // namespace

std::vector<FlowBounds> flow_bounds(const SectionGraph& graph, std::int64_t train_samples,
                                    std::int64_t evaluate_samples) {
  std::vector<FlowBounds> bounds(graph.nodes().size());
  raise_in_flight(graph, train_samples, bounds);
  raise_buffers(graph, train_samples, true, bounds);
  raise_buffers(graph, evaluate_samples, false, bounds);
  return bounds;
}

std::int64_t run_ahead_buffers(const SectionGraph& graph, SectionId section, std::int64_t slots) {
  const GraphNode& node = graph.node(section);
  const std::int64_t own = node.micro_batch * node.replicas;
  std::int64_t blocks = 0;
  for (const EdgeId edge : graph.outputs(section)) {
    const GraphNode& consumer = graph.node(graph.edge(edge).to);
    const std::int64_t samples = slots * consumer.micro_batch * consumer.replicas;
    blocks = std::max(blocks, (samples + own - 1) / own);
  }
  return blocks;
}

}  // namespace maestro
