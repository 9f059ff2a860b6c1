// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/reshard/edge_step.hpp"

#include <algorithm>
#include <chrono>
#include <random>

#include "runtime/schedule/step_planner.hpp"
#include "transport/ring/slot_layout.hpp"

namespace maestro::bench {

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

GraphNode node_of(std::string name, const SectionLayout& layout, std::int64_t samples) {
  GraphNode node;
  node.name = std::move(name);
  node.replicas = layout.replicas;
  node.layout = layout.layout;
  node.micro_batch = layout.micro_batch;
  node.max_in_flight = samples;  // pieces do not depend on it, and it delays no layout
  return node;
}

// The sections have the ports of decoder_trunk and language_model_head.
SectionGraph graph_of(const LayoutPair& pair, const StepSize& size) {
  const Port tokens{"tokens", DType::i32};
  const Port targets{"targets", DType::i32};
  const Port hidden{"hidden", DType::f32, size.columns, true, false, Axis::tokens, Sharding::rank_rows};
  SectionGraph graph;
  GraphNode corpus = node_of("corpus", {1, {}, size.samples}, size.samples);
  corpus.role = Role::source;
  corpus.ports.outputs = {tokens, targets};
  GraphNode producer = node_of("producer", pair.from, size.samples);
  producer.ports = {{tokens}, {hidden}};
  GraphNode consumer = node_of("consumer", pair.to, size.samples);
  consumer.ports.inputs = {hidden, targets};
  graph.add(std::move(corpus));
  graph.add(std::move(producer));
  graph.add(std::move(consumer));
  graph.connect("corpus", "tokens", "producer", "tokens");
  graph.connect("producer", "hidden", "consumer", "hidden");
  graph.connect("corpus", "targets", "consumer", "targets");
  graph.validate();
  return graph;
}

std::vector<SampleRef> samples_of(const StepSize& size) {
  std::mt19937_64 random(1);
  std::vector<SampleRef> samples;
  const auto lengths = static_cast<std::uint64_t>(size.most_tokens - size.least_tokens + 1);
  for (std::int64_t at = 0; at < size.samples; ++at) {
    samples.push_back(
        {SampleId(static_cast<std::uint64_t>(at)), size.least_tokens + static_cast<std::int64_t>(random() % lengths)});
  }
  return samples;
}

StepPlannerOptions planner_options(const SectionGraph& graph, const StepSize& size) {
  StepPlannerOptions options;
  options.graph = &graph;
  PolicyOptions policy;
  policy.evaluations = 200;  // the default of a job
  options.policy = make_policy("wavefront", policy);
  options.costs = CostModel([](SectionId, const SampleRef& sample) {
    const auto tokens = static_cast<double>(sample.tokens);
    return PassCost{1e7 * tokens, 2e7 * tokens};
  });
  options.limits = {.slots = 2, .train_samples = size.samples};
  return options;
}

/// Plans only the edge, and sets the planning time and the least rows of any plan.
void measure_resharding(EdgeStep& step) {
  ReshardRequest request;
  request.axis = step.edge().axis;
  request.sender = {step.graph.node(step.sender()).layout, step.graph.sender_sharding(step.channel)};
  request.receiver = {step.graph.node(step.receiver()).layout, step.graph.receiver_sharding(step.channel)};
  for (const MicroBatchPlan* batch : step.micro_batches(step.sender())) request.senders.emplace_back(batch->samples);
  for (const MicroBatchPlan* batch : step.micro_batches(step.receiver())) {
    request.receivers.emplace_back(batch->samples);
  }
  step.least_rows = least_rows(request);
  constexpr int repetitions = 101;
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = Clock::now();
    const ReshardPlan plan = ReshardPlan::make(request);
    times.push_back(microseconds_since(start));
  }
  std::ranges::nth_element(times, times.begin() + repetitions / 2);
  step.resharding_us = times[repetitions / 2];
}

}  // namespace

std::vector<const MicroBatchPlan*> EdgeStep::micro_batches(SectionId section) const {
  std::vector<const MicroBatchPlan*> result;
  for (const MicroBatchPlan& batch : plan.micro_batches) {
    if (batch.section == section) result.push_back(&batch);
  }
  return result;
}

std::vector<PieceOut> EdgeStep::pieces() const {
  std::vector<PieceOut> result;
  for (const MicroBatchPlan* batch : micro_batches(sender())) {
    for (const PieceOut& piece : batch->pieces) {
      if (piece.channel == channel) result.push_back(piece);
    }
  }
  return result;
}

EdgeStep plan_edge_step(const LayoutPair& pair, const StepSize& size, Direction direction) {
  EdgeStep step;
  step.pair = pair;
  step.size = size;
  step.graph = graph_of(pair, size);
  step.channel = {step.graph.inputs(*step.graph.find("consumer")).front(), direction};
  StepPlanner planner(planner_options(step.graph, size));
  const std::vector<SampleRef> samples = samples_of(size);
  const auto start = Clock::now();
  step.plan = planner.plan(StepId(1), Pass::train, samples, 1.0).value_or_throw().plan;
  step.planning_us = microseconds_since(start);
  measure_resharding(step);
  return step;
}

StepTraffic traffic_of(const EdgeStep& step) {
  StepTraffic traffic;
  for (const MicroBatchPlan& batch : step.plan.micro_batches) {
    for (const PieceOut& piece : batch.pieces) {
      const auto row_bytes = static_cast<std::int64_t>(step.graph.edge(piece.channel.edge).row_bytes());
      traffic.bytes += piece.rows * row_bytes + static_cast<std::int64_t>(sizeof(PieceHeader));
      ++traffic.pieces;
    }
  }
  return traffic;
}

}  // namespace maestro::bench
