// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/step_planner.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "runtime/schedule/reshard.hpp"

namespace maestro {

namespace {

constexpr std::size_t npos = static_cast<std::size_t>(-1);

bool same(const WorkloadTask& a, const WorkloadTask& b) {
  const auto same_input = [](const TaskInput& x, const TaskInput& y) { return x.edge == y.edge && x.task == y.task; };
  return a.section == b.section && a.forward_ms == b.forward_ms && a.backward_ms == b.backward_ms &&
         std::ranges::equal(a.inputs, b.inputs, same_input);
}

/// Returns whether two workloads are alike. Sections differ only between passes, edges only in their measured times.
bool same(const Workload& a, const Workload& b) {
  const auto same_section = [](const WorkloadSection& x, const WorkloadSection& y) {
    return x.has_backward == y.has_backward;
  };
  return std::ranges::equal(a.sections, b.sections, same_section) &&
         std::ranges::equal(a.edges, b.edges, {}, &WorkloadEdge::transfer_ms, &WorkloadEdge::transfer_ms) &&
         std::ranges::equal(a.tasks, b.tasks, [](const auto& x, const auto& y) { return same(x, y); });
}

/// Returns ReshardEnd::contexts.
std::vector<std::int64_t> contexts_of(const GraphNode& node, const std::vector<MicroBatchPlan*>& batches) {
  std::vector<std::int64_t> contexts;
  for (const MicroBatchPlan* batch : batches) {
    if (node.mixed()) contexts.push_back(node.contexts[batch->replica.value()]);
  }
  return contexts;
}

std::vector<SampleRef> chosen(std::span<const SampleRef> samples, const CutBatch& batch) {
  std::vector<SampleRef> result;
  for (const std::uint32_t place : batch) result.push_back(samples[place]);
  return result;
}

}  // namespace

StepPlanner::StepPlanner(StepPlannerOptions options)
    : options_(std::move(options)), fallback_(make_policy("arrival")), workload_index_(options_.graph->nodes().size()) {
  const SectionGraph& graph = *options_.graph;
  std::ranges::fill(workload_index_, npos);
  for (const SectionId section : graph.topological()) {
    if (!graph.node(section).plays_in_steps()) continue;
    workload_index_[section.value()] = order_.size();
    order_.push_back(section);
  }
}

Workload StepPlanner::sections_and_edges(Pass pass) const {
  const SectionGraph& graph = *options_.graph;
  Workload workload;
  for (const SectionId section : order_) {
    const GraphNode& node = graph.node(section);
    WorkloadSection made;
    made.name = node.name;
    // A section that does not split them runs both passes back to back: the policy sees a single forward pass.
    made.has_backward = graph.splits_passes(section) && pass == Pass::train;
    made.replicas = node.replicas;
    made.max_in_flight = node.max_in_flight;
    if (!options_.devices.empty()) made.devices = options_.devices[section.value()];
    if (!options_.speeds.empty()) made.speeds = options_.speeds[section.value()];
    workload.sections.push_back(std::move(made));
  }
  return workload;
}

WorkloadTask StepPlanner::task_of(const Workload& workload, std::size_t at, std::span<const SampleRef> samples,
                                  Pass pass) const {
  const PassCost cost = options_.costs.of(order_[at], samples);
  WorkloadTask task;
  task.section = at;
  task.forward_ms = cost.forward;
  if (workload.sections[at].has_backward) {
    task.backward_ms = cost.backward;
  } else if (pass == Pass::train && options_.graph->node(order_[at]).runs_backward()) {
    task.forward_ms += cost.backward;
  }
  return task;
}

std::vector<SampleRef> StepPlanner::packed(Pass pass, std::span<const SampleRef> samples) const {
  const SectionGraph& graph = *options_.graph;
  Workload workload = sections_and_edges(pass);
  for (const GraphEdge& edge : graph.edges()) {
    const std::size_t from = workload_index_[edge.from.value()];
    if (from != npos) workload.edges.push_back({from, workload_index_[edge.to.value()], no_limit, 0});
  }
  std::vector<std::vector<std::size_t>> tasks(samples.size(), std::vector<std::size_t>(order_.size(), npos));
  for (std::size_t at = 0; at < order_.size(); ++at) {
    for (std::size_t sample = 0; sample < samples.size(); ++sample) {
      if (!activates(graph.node(order_[at]), samples[sample])) continue;
      WorkloadTask task = task_of(workload, at, samples.subspan(sample, 1), pass);
      task.sample = static_cast<std::int64_t>(sample);
      for (std::size_t edge = 0; edge < workload.edges.size(); ++edge) {
        const std::size_t producer = workload.edges[edge].to == at ? tasks[sample][workload.edges[edge].from] : npos;
        if (producer != npos) task.inputs.push_back({edge, producer});
      }
      tasks[sample][at] = workload.tasks.size();
      workload.tasks.push_back(std::move(task));
    }
  }
  std::vector<SampleRef> result;
  for (const std::size_t place : options_.policy->packing_order(workload, samples.size())) {
    result.push_back(samples[place]);
  }
  return result;
}

void StepPlanner::add_tasks(PlannedStep& planned, const StepCut& cut, std::span<const SampleRef> samples,
                            Pass pass) const {
  const SectionGraph& graph = *options_.graph;
  planned.workload = sections_and_edges(pass);
  Workload& workload = planned.workload;
  std::vector<std::vector<std::size_t>> task_of(graph.nodes().size(), std::vector<std::size_t>(samples.size(), npos));
  std::vector<std::size_t> edge_index(graph.edges().size(), npos);
  for (std::size_t index = 0; index < graph.edges().size(); ++index) {
    const GraphEdge& edge = graph.edges()[index];
    if (graph.node(edge.from).role == Role::source) continue;
    edge_index[index] = workload.edges.size();
    const bool kept =
        workload.sections[workload_index_[edge.from.value()]].has_backward;  // bounded by in-flight limits
    const EdgeId id(static_cast<std::uint32_t>(index));
    workload.edges.push_back({workload_index_[edge.from.value()], workload_index_[edge.to.value()],
                              kept ? no_limit : planned_slots(graph, id, options_.limits),
                              options_.costs.transfer_ms(id)});
  }
  for (std::size_t at = 0; at < order_.size(); ++at) {
    const SectionId section = order_[at];
    for (std::uint32_t index = 0; index < cut[section.value()].size(); ++index) {
      const CutBatch& batch = cut[section.value()][index];
      WorkloadTask task = this->task_of(workload, at, chosen(samples, batch), pass);
      task.sample = index;
      for (const EdgeId edge : graph.inputs(section)) {
        if (edge_index[edge.value()] == npos) continue;
        std::vector<std::size_t> producers;
        for (const std::uint32_t place : batch) {
          const std::size_t producer = task_of[graph.edge(edge).from.value()][place];
          const bool rows = samples[place].rows(graph.edge(edge).axis, graph.edge(edge).sources) > 0;
          if (rows && producer != npos && std::ranges::find(producers, producer) == producers.end()) {
            producers.push_back(producer);
          }
        }
        for (const std::size_t producer : producers) task.inputs.push_back({edge_index[edge.value()], producer});
      }
      for (const std::uint32_t place : batch) task_of[section.value()][place] = workload.tasks.size();
      planned.tasks.emplace_back(section, index);
      workload.tasks.push_back(std::move(task));
    }
  }
}

bool StepPlanner::within_window(const Workload& workload, const Schedule& schedule) const {  // ST-5
  std::map<std::pair<std::size_t, std::int64_t>, std::vector<const PlannedPass*>> lanes;
  for (const PlannedPass& pass : schedule.passes) {
    lanes[{workload.tasks[pass.task].section, pass.replica}].push_back(&pass);
  }
  for (const auto& [lane, passes] : lanes) {
    if (!options_.graph->splits_passes(order_[lane.first]) || !workload.sections[lane.first].has_backward) continue;
    const std::int64_t window = input_window(*options_.graph, order_[lane.first], options_.limits);
    std::map<std::size_t, std::int64_t> held;  // task -> place in forward order
    std::int64_t next = 0;
    for (const PlannedPass* pass : passes) {
      if (pass->backward) {
        held.erase(pass->task);
        continue;
      }
      std::int64_t oldest = next;
      for (const auto& [task, place] : held) oldest = std::min(oldest, place);
      if (next - oldest >= window) return false;
      held[pass->task] = next++;
    }
  }
  return true;
}

Result<Schedule> StepPlanner::schedule(const Workload& workload) {
  if (!last_schedule_.passes.empty() && same(workload, last_workload_)) return last_schedule_;
  Result<Schedule> made = options_.policy->plan(workload);
  if (!made) return made.error();
  if (!within_window(workload, *made)) made = fallback_->plan(workload);
  if (!made) return made.error();
  if (!within_window(workload, *made)) {
    return Error{ErrorCode::internal, "no plan keeps the inputs of every section within its input window"};
  }
  last_workload_ = workload;
  last_schedule_ = *made;
  return made;
}

void StepPlanner::place(PlannedStep& planned, const StepCut& cut, std::span<const SampleRef> samples,
                        double loss_scale) const {
  StepPlan& plan = planned.plan;
  std::map<std::pair<std::size_t, std::int64_t>, std::pair<std::uint32_t, std::uint32_t>> lane_counts;
  std::vector<MicroBatchPlan> by_task(planned.tasks.size());
  std::vector<std::size_t> forward_order;
  for (const PlannedPass& pass : planned.schedule.passes) {
    const auto& [section, index] = planned.tasks[pass.task];
    MicroBatchPlan& batch = by_task[pass.task];
    auto& [forwards, backwards] = lane_counts[{section.value(), pass.replica}];
    if (pass.backward) {
      batch.backward_order = backwards++;
      batch.backward_after = forwards;
      batch.backward_phase = static_cast<std::uint32_t>(pass.phase);
      continue;
    }
    ++forwards;
    forward_order.push_back(pass.task);
    batch.section = section;
    batch.index = index;
    batch.replica = ReplicaIndex(static_cast<std::uint32_t>(pass.replica));
    batch.samples = chosen(samples, cut[section.value()][index]);
    batch.group = static_cast<std::uint32_t>(pass.group);
    batch.forward_phase = static_cast<std::uint32_t>(pass.phase);
  }
  for (std::uint32_t section = 0; section < cut.size(); ++section) {
    if (options_.graph->node(SectionId(section)).role != Role::source) continue;
    for (std::uint32_t index = 0; index < cut[section].size(); ++index) {
      MicroBatchPlan batch;
      batch.section = SectionId(section);
      batch.index = index;
      batch.samples = chosen(samples, cut[section][index]);
      plan.micro_batches.push_back(std::move(batch));
    }
  }
  for (const SectionId section : order_) {
    for (const std::size_t task : forward_order) {
      if (planned.tasks[task].first == section) plan.micro_batches.push_back(std::move(by_task[task]));
    }
  }
  const bool phased = std::ranges::any_of(planned.schedule.passes, [](const auto& pass) { return pass.phase > 0; });
  std::vector<std::int64_t> tokens(cut.size());
  const auto reading = [&](SectionId section) { return options_.graph->node(section).reading; };
  for (const MicroBatchPlan& batch : plan.micro_batches) {
    for (const SampleRef& sample : batch.samples) {
      tokens[batch.section.value()] += sample.read_as(reading(batch.section)).tokens;
    }
  }
  for (MicroBatchPlan& batch : plan.micro_batches) {
    batch.step_tokens = std::max<std::int64_t>(tokens[batch.section.value()], 1);
    batch.phased = phased && options_.graph->node(batch.section).role != Role::source;
    batch.step = plan.step;
    batch.pass = plan.pass;
    batch.loss_scale = loss_scale;
  }
}

void StepPlanner::add_turns(PlannedStep& planned) const {  // ST-7
  if (options_.turns.empty()) return;
  std::map<std::pair<SectionId, std::uint32_t>, MicroBatchPlan*> batches;
  for (MicroBatchPlan& batch : planned.plan.micro_batches) batches[{batch.section, batch.index}] = &batch;
  std::map<std::uint32_t, std::pair<std::uint32_t, std::vector<DeviceTurn>*>> devices;  // places, and the last pass
  for (const PlannedPass& pass : planned.schedule.passes) {
    const auto found = batches.find(planned.tasks[pass.task]);
    if (found == batches.end()) continue;  // ST-6
    MicroBatchPlan& batch = *found->second;
    const auto& lanes = options_.turns[batch.section.value()];
    if (lanes.empty()) continue;
    std::vector<DeviceTurn>& turns = pass.backward ? batch.backward_turns : batch.forward_turns;
    for (const std::uint32_t device : lanes[batch.replica.value()]) {
      auto& [places, last] = devices[device];
      turns.push_back({device, places++});
      last = &turns;
    }
  }
  for (auto& [device, taken] : devices) {
    std::ranges::find(*taken.second, device, &DeviceTurn::device)->last = true;
  }
}

void StepPlanner::join(StepPlan& plan, Channel channel) {
  const SectionGraph& graph = *options_.graph;
  const SectionId from = graph.sender(channel);
  const SectionId to = graph.receiver(channel);
  ReshardRequest request;
  request.axis = graph.edge(channel.edge).axis;
  request.sources = graph.edge(channel.edge).sources;
  request.sender = {graph.node(from).layout, graph.sender_sharding(channel)};
  request.receiver = {graph.node(to).layout, graph.receiver_sharding(channel)};
  std::vector<MicroBatchPlan*> senders;
  std::vector<MicroBatchPlan*> receivers;
  for (MicroBatchPlan& batch : plan.micro_batches) {
    if (batch.section == from) senders.push_back(&batch);
    if (batch.section == to && batch.rows(request.axis, request.sources) > 0) receivers.push_back(&batch);
  }
  if (channel.gradient()) {
    std::ranges::stable_sort(receivers, {}, [](const MicroBatchPlan* batch) { return batch->backward_order; });
  }
  for (const MicroBatchPlan* batch : senders) request.senders.emplace_back(batch->samples);
  for (const MicroBatchPlan* batch : receivers) request.receivers.emplace_back(batch->samples);
  request.sender.contexts = contexts_of(graph.node(from), senders);
  request.receiver.contexts = contexts_of(graph.node(to), receivers);
  const ReshardPlan resharded = ReshardPlan::make(request);

  for (std::size_t at = 0; at < receivers.size(); ++at) {
    MicroBatchPlan& receiver = *receivers[at];
    const std::uint64_t sequence = next_sequence_[{channel, receiver.replica}]++;
    const auto ranks = static_cast<std::uint32_t>(request.receiver.of(at).ranks());
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      ArrivalPlan arrival{channel, sequence, {}, LayoutRank(rank)};
      for (const ReshardPiece& piece : resharded.pieces(at, rank)) {
        MicroBatchPlan& sender = *senders[piece.sender];
        const auto index = static_cast<std::uint32_t>(arrival.pieces.size());
        const LayoutRank sender_rank(piece.sender_rank);
        sender.pieces.push_back({channel, receiver.replica, sequence, index, piece.source_row, piece.target_row,
                                 piece.rows, sender_rank, arrival.rank});
        arrival.pieces.push_back({piece.rows, sender.replica, sender_rank});
      }
      receiver.arrivals.push_back(std::move(arrival));
    }
  }
}

Result<PlannedStep> StepPlanner::plan(StepId step, Pass pass, std::span<const SampleRef> given, double loss_scale) {
  PlannedStep planned;
  planned.plan.step = step;
  planned.plan.pass = pass;
  std::vector<SampleRef> samples = packed(pass, given);
  for (std::uint32_t index = 0; index < samples.size(); ++index) samples[index].index_in_step = index;
  const StepCut cut = cut_step(*options_.graph, samples);
  add_tasks(planned, cut, samples, pass);
  if (!planned.workload.tasks.empty()) {
    Result<Schedule> made = schedule(planned.workload);
    if (!made) return made.error();
    planned.schedule = std::move(*made);
  }
  place(planned, cut, samples, loss_scale);
  if (pass == Pass::train) {
    std::erase_if(planned.plan.micro_batches, [&](const MicroBatchPlan& batch) {
      const auto found = options_.trained_until.find(batch.section);
      return found != options_.trained_until.end() && step <= found->second;
    });
  }
  add_turns(planned);
  for (const Channel channel : options_.graph->channels()) {
    if (!channel.gradient() || pass == Pass::train) join(planned.plan, channel);
  }
  return planned;
}

}  // namespace maestro
