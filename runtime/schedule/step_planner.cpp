#include "runtime/schedule/step_planner.hpp"

#include <algorithm>
#include <cassert>

namespace maestro {

namespace {

/// The index of `edge` among the arrivals of a micro-batch, which join() has just added.
ArrivalPlan& last_arrival(MicroBatchPlan& batch) {
  return batch.arrivals.back();
}

}  // namespace

StepPlanner::StepPlanner(const SectionGraph& graph, LaneModel lanes) : graph_(&graph), lanes_(std::move(lanes)) {
  for (const GraphEdge& edge : graph.edges()) {
    next_sequence_.emplace_back(static_cast<std::size_t>(graph.node(edge.to).replicas), 0);
    next_gradient_sequence_.emplace_back(static_cast<std::size_t>(graph.node(edge.from).replicas), 0);
  }
  int devices = 0;
  for (const auto& replicas : lanes_.device) {
    for (const int device : replicas) devices = std::max(devices, device + 1);
  }
  device_load_.resize(static_cast<std::size_t>(devices));
}

void StepPlanner::reset_loads(std::span<const SampleRef> ordered) {
  std::fill(device_load_.begin(), device_load_.end(), 0.0);
  double tokens = 0;
  for (const SampleRef& sample : ordered) tokens += static_cast<double>(sample.tokens);
  for (std::size_t section = 0; section < lanes_.device.size(); ++section) {
    const GraphNode& node = graph_->nodes()[section];
    if (node.mode == Mode::forward_only && node.replicas > 1) continue;  // placed by choose_replica
    for (const int device : lanes_.device[section]) {
      device_load_[static_cast<std::size_t>(device)] +=
          tokens * lanes_.cost_per_token[section] / static_cast<double>(node.replicas);
    }
  }
}

ReplicaIndex StepPlanner::choose_replica(SectionId section, std::size_t batch, double cost) {
  const GraphNode& node = graph_->node(section);
  const auto replicas = static_cast<std::size_t>(node.replicas);
  if (node.mode != Mode::forward_only || replicas == 1 || lanes_.device.empty()) {
    return ReplicaIndex(static_cast<std::uint32_t>(batch % replicas));
  }
  const auto load = [&](std::size_t replica) -> double& {
    return device_load_[static_cast<std::size_t>(lanes_.device[section.value()][replica])];
  };
  std::size_t least = 0;
  for (std::size_t replica = 1; replica < replicas; ++replica) {
    if (load(replica) < load(least)) least = replica;
  }
  load(least) += cost;
  return ReplicaIndex(static_cast<std::uint32_t>(least));
}

void StepPlanner::cut(StepPlan& plan, SectionId section, std::span<const SampleRef> ordered, double loss_scale,
                      SectionBatches& batches) {
  const GraphNode& node = graph_->node(section);
  const auto size = static_cast<std::size_t>(node.micro_batch);
  batches.first = plan.micro_batches.size();
  for (std::size_t begin = 0; begin < ordered.size(); begin += size) {
    const auto part = ordered.subspan(begin, std::min(size, ordered.size() - begin));
    MicroBatchPlan batch;
    batch.section = section;
    batch.step = plan.step;
    batch.pass = plan.pass;
    batch.index = static_cast<std::uint32_t>(batches.count);
    batch.loss_scale = loss_scale;
    batch.samples.assign(part.begin(), part.end());
    const double token_cost = lanes_.cost_per_token.empty() ? 1.0 : lanes_.cost_per_token[section.value()];
    batch.replica = choose_replica(section, batches.count, token_cost * static_cast<double>(batch.rows()));
    plan.micro_batches.push_back(std::move(batch));
    ++batches.count;
  }
}

void StepPlanner::join(StepPlan& plan, EdgeId edge, const SectionBatches& producers, const SectionBatches& consumers,
                       bool gradient) {
  // Both sides hold the same samples in the same order, so the pieces are the overlaps of two partitions of the rows.
  auto& counters = gradient ? next_gradient_sequence_[edge.value()] : next_sequence_[edge.value()];
  for (std::size_t at = 0; at < consumers.count; ++at) {
    MicroBatchPlan& receiver = plan.micro_batches[consumers.first + at];
    receiver.arrivals.push_back({edge, gradient, counters[receiver.replica.value()]++, {}});
  }
  std::size_t sender_at = 0;
  std::size_t receiver_at = 0;
  std::int64_t sender_row = 0;
  std::int64_t receiver_row = 0;
  while (sender_at < producers.count && receiver_at < consumers.count) {
    MicroBatchPlan& sender = plan.micro_batches[producers.first + sender_at];
    MicroBatchPlan& receiver = plan.micro_batches[consumers.first + receiver_at];
    ArrivalPlan& arrival = last_arrival(receiver);
    PieceOut piece;
    piece.edge = edge;
    piece.gradient = gradient;
    piece.receiver = receiver.replica;
    piece.sequence = arrival.sequence;
    piece.index = static_cast<std::uint32_t>(arrival.pieces.size());
    piece.source_row = sender_row;
    piece.target_row = receiver_row;
    piece.rows = std::min(sender.rows() - sender_row, receiver.rows() - receiver_row);
    arrival.pieces.push_back({piece.rows, sender.replica});
    sender.pieces.push_back(piece);
    sender_row += piece.rows;
    receiver_row += piece.rows;
    if (sender_row == sender.rows()) ++sender_at, sender_row = 0;
    if (receiver_row == receiver.rows()) ++receiver_at, receiver_row = 0;
  }
  assert(sender_at == producers.count && receiver_at == consumers.count);  // ST-2
}

StepPlan StepPlanner::plan(StepId step, Pass pass, std::span<const SampleRef> ordered, double loss_scale) {
  StepPlan plan;
  plan.step = step;
  plan.pass = pass;
  reset_loads(ordered);
  std::vector<SectionBatches> batches(graph_->nodes().size());
  for (std::uint32_t index = 0; index < graph_->nodes().size(); ++index) {
    cut(plan, SectionId(index), ordered, loss_scale, batches[index]);
  }
  for (std::uint32_t index = 0; index < graph_->edges().size(); ++index) {
    const GraphEdge& edge = graph_->edges()[index];
    join(plan, EdgeId(index), batches[edge.from.value()], batches[edge.to.value()], false);
  }
  for (std::uint32_t index = 0; index < graph_->edges().size(); ++index) {
    const GraphEdge& edge = graph_->edges()[index];
    if (!edge.gradient || pass != Pass::train) continue;
    join(plan, EdgeId(index), batches[edge.to.value()], batches[edge.from.value()], true);
  }
  return plan;
}

}  // namespace maestro
