// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/replica_trace.hpp"

#include <algorithm>
#include <chrono>

#include "actors/replica/piece_flow.hpp"

namespace maestro {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::nanoseconds tick(1);  // a slice contains only times before its end

std::string label_of(const SectionGraph& graph, const TracedRank& rank) {
  const GraphNode& node = graph.node(rank.section);
  const std::string replica = node.name + "/" + std::to_string(rank.replica.value());
  return node.layout.ranks() == 1 ? replica : replica + "." + std::to_string(rank.layout_rank.value());
}

}  // namespace

void TracedWork::finished(TraceTime begin) const {
  const TraceTime end = std::max(Clock::now(), begin + tick);
  const TraceSlice slice{track, label, category, begin, end};
  const TraceArg of_step("step", step.value());
  if (sequences) {
    recorder->slice(slice, {of_step, {"sequences", *sequences}});
  } else if (!batch) {
    recorder->slice(slice, {of_step});
  } else if (batch->pass == Pass::train) {
    recorder->slice(slice, {of_step, {"batch", batch->index}, {"rows", batch->rows}});
  } else {
    recorder->slice(slice, {of_step, {"batch", batch->index}, {"rows", batch->rows}, {"pass", "evaluate"}});
  }
  for (const auto& [flow, port] : in) recorder->flow_end(track, flow, begin, port);
  for (const auto& [flow, port] : out) recorder->flow_start(track, flow, end - tick, port);
}

ReplicaTrace::ReplicaTrace(TraceRecorder& recorder, const SectionGraph& graph, const TracedRank& rank)
    : recorder_(&recorder),
      graph_(&graph),
      rank_(rank),
      track_(recorder.track(label_of(graph, rank))),
      transfers_(recorder.track(label_of(graph, rank) + " transfers")) {}

TracedWork ReplicaTrace::work(std::string_view label, TraceCategory category, StepId step) const {
  return {recorder_, track_, label, category, step, {}, {}, {}, {}};
}

void ReplicaTrace::add_pass(TracedWork& work, const MicroBatchPlan& plan, bool forward, bool backward) const {
  work.batch = TracedBatch{plan.index, plan.rows(graph_->node(plan.section).axis()), plan.pass};  // named by failures
  if (!on()) return;
  const auto name = [this](Channel channel) -> std::string_view { return graph_->edge(channel.edge).from_port; };
  for (const ArrivalPlan& arrival : plan.arrivals) {
    if (arrival.rank != rank_.layout_rank) continue;
    if (arrival.channel.gradient() == forward) continue;  // forward passes read inputs, backward passes read gradients
    for (std::uint32_t index = 0; index < arrival.pieces.size(); ++index) {
      const PieceKey key{arrival.channel, rank_.replica, rank_.layout_rank, arrival.sequence, index};
      work.in.emplace_back(piece_flow(key), name(arrival.channel));
    }
  }
  for (const PieceOut& piece : plan.pieces) {
    if (piece.source_rank != rank_.layout_rank || (piece.channel.gradient() ? !backward : !forward)) continue;
    const PieceKey key{piece.channel, piece.receiver, piece.target_rank, piece.sequence, piece.index};
    work.out.emplace_back(piece_flow(key), name(piece.channel));
  }
}

void ReplicaTrace::waited(TraceTime since, const std::string& reason) const {
  recorder_->slice({track_, "wait", TraceCategory::wait, since, Clock::now()}, {{"for", reason}});
}

void ReplicaTrace::transferred(const Transfer& transfer) {
  if (!on()) return;
  const TraceTime begin = std::max(transfer.begin, transfers_end_);
  transfers_end_ = std::max(Clock::now(), begin + tick);
  const Channel channel = transfer.piece.channel;
  const std::optional<SectionId> generator = graph_->generator_of(channel);
  recorder_->slice(
      {transfers_, transfer.remote ? "write" : "hand over", TraceCategory::transfer, begin, transfers_end_},
      {{"port", generator ? "weights" : graph_->edge(channel.edge).from_port},
       {"to", graph_->node(generator ? *generator : graph_->receiver(channel)).name},
       {"replica", transfer.piece.receiver.value()},
       {"rows", transfer.piece.rows},
       {"step", transfer.step.value()}});
}

}  // namespace maestro
