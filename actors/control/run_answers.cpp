// SPDX-License-Identifier: Apache-2.0
#include "actors/control/run_answers.hpp"

#include <algorithm>
#include <set>

#include "actors/control/control_types.h"
#include "actors/messages/wait_text.hpp"
#include "runtime/wavefront/lower_bound.hpp"

namespace maestro {
namespace {

using Lane = std::pair<SectionId, ReplicaIndex>;

control::State::type state_of(RunState state) {
  return static_cast<control::State::type>(state);
}

/// Present places of replicas, and processes.
struct Places {
  explicit Places(const ResolvedJob& job, const Directory* directory) {
    for (const ReplicaPlacement& place : job.places) places[{place.section, place.replica}] = place;
    if (directory == nullptr) return;
    for (const ProcessInfo& info : directory->processes) processes[info.process] = &info;
    for (const ReplicaAddress& replica : directory->replicas()) move(replica, job.places);
  }
  /// Sets the place of a moved replica, which shares its section's devices in the new process.
  void move(const ReplicaAddress& replica, const std::vector<ReplicaPlacement>& planned) {
    ReplicaPlacement& place = places.at({replica.section, replica.replica});
    if (place.process == replica.process) return;
    place.process = replica.process;
    const auto host = std::ranges::find_if(planned, [&](const ReplicaPlacement& one) {
      return one.section == replica.section && one.process == replica.process;
    });
    if (host != planned.end()) place.devices = host->devices;
  }
  [[nodiscard]] std::vector<std::string> devices_of(const ReplicaPlacement& place) const {
    const auto process = processes.find(place.process);
    const bool joined = process != processes.end() && !process->second->devices.empty();
    return joined ? process->second->devices : texts_of(place.devices);
  }
  std::map<Lane, ReplicaPlacement> places;
  std::map<ProcessId, const ProcessInfo*> processes;
};

std::int32_t number(std::uint64_t value) {
  return static_cast<std::int32_t>(value);
}

control::Wait wait_of(const WaitingFor& waiting, const Places& places, const SectionGraph& graph) {
  control::Wait wait;
  wait.kind = static_cast<control::WaitKind::type>(waiting.kind);
  wait.step = static_cast<std::int64_t>(waiting.step.value());
  wait.text = waiting.kind == WaitKind::work ? "the next work item of the coordinator" : wait_text(waiting, graph);
  if (waiting.kind == WaitKind::input || waiting.kind == WaitKind::gradient || waiting.kind == WaitKind::credit) {
    wait.__set_sample(static_cast<std::int64_t>(waiting.sample));
  }
  if (waiting.kind == WaitKind::work || waiting.kind == WaitKind::norm || waiting.kind == WaitKind::phase) {
    wait.processes = {0};  // the coordinator's process
    return wait;
  }
  wait.section = graph.node(waiting.peer).name;
  std::set<std::int32_t> processes;
  for (const ReplicaIndex peer : waiting.peers) {
    wait.replicas.push_back(number(peer.value()));
    const auto place = places.places.find({waiting.peer, peer});
    if (place != places.places.end()) processes.insert(number(place->second.process.value()));
  }
  wait.processes.assign(processes.begin(), processes.end());
  return wait;
}

control::ReplicaFigures replica_figures(const ReplicaPlacement& place, const WaitingFor* answer, const Places& places,
                                        const SectionGraph& graph) {
  control::ReplicaFigures figures;
  figures.section = graph.node(place.section).name;
  figures.replica = number(place.replica.value());
  figures.process = number(place.process.value());
  figures.devices = places.devices_of(place);
  if (const auto process = places.processes.find(place.process); process != places.processes.end()) {
    figures.host = process->second->host;
    figures.pid = process->second->identity.pid;
  }
  figures.state = control::ReplicaState::NO_ANSWER;
  if (answer == nullptr) return figures;
  figures.step = static_cast<std::int64_t>(answer->step.value());
  if (answer->kind == WaitKind::nothing) {
    figures.state = control::ReplicaState::BUSY;
    figures.doing = answer->doing;
    if (answer->doing.ends_with("ward")) figures.__set_micro_batch(number(answer->micro_batch));
    return figures;
  }
  figures.state = control::ReplicaState::IDLE;
  figures.__set_wait(wait_of(*answer, places, graph));
  return figures;
}

/// Returns the share of time that the lanes of a section and its stages spent in passes.
std::optional<double> busy_share_of(const std::string& section, const ResolvedJob& job, const LaneUses& uses) {
  LaneUse sum;
  for (const SectionId id : job.graph.stages_of(section)) {
    for (const auto& [lane, use] : uses) {
      if (lane.first == id) sum += use;
    }
  }
  return sum.whole_ms > 0 ? std::optional(sum.busy_share()) : std::nullopt;
}

control::SectionFigures section_figures(const GraphNode& node, const ResolvedJob& job, const RunStatus& run) {
  control::SectionFigures figures;
  figures.name = node.section_name();
  figures.replicas = number(static_cast<std::uint64_t>(node.replicas));
  figures.trained = node.trained();
  if (const auto row = run.latest.find(figures.name); row != run.latest.end()) {
    figures.step = static_cast<std::int64_t>(row->second.step.value());
    figures.metrics = row->second.metrics;
  }
  if (!node.plays_in_steps()) return figures;  // it computes nothing
  if (const auto share = busy_share_of(figures.name, job, run.figures.recent_use)) figures.__set_busy(*share);
  return figures;
}

/// Adds a lane's use of its devices.
void add_to_devices(const control::ReplicaFigures& replica, double share,
                    std::vector<control::DeviceFigures>& devices) {
  for (const std::string& name : replica.devices) {
    auto found = std::ranges::find_if(
        devices, [&](const auto& each) { return each.process == replica.process && each.device == name; });
    if (found == devices.end()) {
      control::DeviceFigures device;
      device.process = replica.process;
      device.host = replica.host;
      device.device = name;
      found = devices.insert(devices.end(), std::move(device));
    }
    found->busy = std::min(1.0, found->busy + share);  // lanes end their steps at different times
  }
}

control::PlannedSection planned_section(SectionId id, const ResolvedJob& job, const Places& places) {
  const GraphNode& node = job.graph.node(id);
  control::PlannedSection planned;
  planned.name = node.name;
  planned.mode = std::string(mode_name(node.role));
  planned.trained = node.trained();
  planned.tensor = number(static_cast<std::uint64_t>(node.layout.tensor));
  planned.context = number(static_cast<std::uint64_t>(node.layout.context));
  planned.stage = number(static_cast<std::uint64_t>(node.stage));
  planned.stages = number(static_cast<std::uint64_t>(node.stages));
  planned.micro_batch = node.micro_batch;
  planned.max_in_flight = node.max_in_flight;
  planned.precision = name_of(job.sections[id.value()].config.precision);
  for (const auto& [lane, place] : places.places) {
    if (place.section != id) continue;
    control::PlannedReplica replica;
    replica.replica = number(place.replica.value());
    replica.process = number(place.process.value());
    replica.devices = places.devices_of(place);
    if (const auto process = places.processes.find(place.process); process != places.processes.end()) {
      replica.host = process->second->host;
    }
    planned.replicas.push_back(std::move(replica));
  }
  return planned;
}

std::vector<control::Row> rows_of(const std::vector<StepRow>& rows) {
  std::vector<control::Row> result;
  for (const StepRow& row : rows) {
    control::Row& made = result.emplace_back();
    made.section = row.section;
    made.step = static_cast<std::int64_t>(row.step.value());
    made.metrics = row.metrics;
  }
  return result;
}

}  // namespace

control::Status status_answer(const ResolvedJob& job, const RunStatus& run, const std::vector<WaitingFor>& answers) {
  control::Status status;
  status.state = state_of(run.state);
  status.job = job.name;
  status.step = static_cast<std::int64_t>(run.last_step);
  status.steps = all_steps(job);
  if (job.stage.given()) status.stage = job.stages.line(static_cast<std::size_t>(job.stage.number - 1));
  const auto epoch_samples = std::max<std::uint64_t>(epoch_positions(job), 1);
  status.epoch = static_cast<double>(run.position) / static_cast<double>(epoch_samples);
  status.elapsed_s = run.elapsed_s;
  status.samples_per_s = run.samples_per_s;
  status.samples_trained = static_cast<std::int64_t>(run.samples_trained);
  status.tokens_trained = static_cast<std::int64_t>(run.tokens_trained);
  if (run.loss) status.__set_loss(*run.loss);
  for (const RunUnit& unit : run.units) {
    control::Unit& shown = status.units.emplace_back();
    shown.kind = static_cast<control::UnitKind::type>(unit.kind);
    shown.step = static_cast<std::int64_t>(unit.step.value());
  }
  for (const GraphNode& node : job.graph.nodes()) {
    if (node.stage == 0) status.sections.push_back(section_figures(node, job, run));
  }
  if (run.stops_after) status.__set_stops_after(static_cast<std::int64_t>(*run.stops_after));
  if (run.steady_step) status.__set_step_ms(run.steady_step->step_ms);
  if (run.steady_step) status.__set_step_time_over_bound(run.steady_step->over_bound());
  std::map<Lane, const WaitingFor*> answer_of;
  for (const WaitingFor& answer : answers) answer_of[{answer.section, answer.replica}] = &answer;
  const Places places(job, run.directory.get());
  for (const auto& [lane, place] : places.places) {
    const auto answer = answer_of.find(lane);
    status.replicas.push_back(
        replica_figures(place, answer == answer_of.end() ? nullptr : answer->second, places, job.graph));
    const auto use = run.figures.recent_use.find(lane);
    if (use == run.figures.recent_use.end() || job.graph.node(lane.first).role == Role::source) continue;
    status.replicas.back().__set_busy(use->second.busy_share());
    add_to_devices(status.replicas.back(), use->second.device_share(), status.devices);
  }
  std::ranges::sort(status.devices, {}, [](const auto& each) { return std::pair(each.process, each.device); });
  status.checkpoint = run.checkpoint;
  status.recoveries = run.recoveries;
  return status;
}

control::Plan plan_answer(const ResolvedJob& job, const RunStatus& run) {
  control::Plan plan;
  plan.job = job.name;
  plan.policy = job.schedule.policy;
  plan.slots = job.transport.slots;
  plan.global_batch = job.train.global_batch;
  const Places places(job, run.directory.get());
  for (std::uint32_t id = 0; id < job.graph.nodes().size(); ++id) {
    plan.sections.push_back(planned_section(SectionId(id), job, places));
  }
  for (const GraphEdge& edge : job.graph.edges()) {
    control::PlannedEdge& shown = plan.edges.emplace_back();
    shown.from_section = job.graph.node(edge.from).name;
    shown.from_port = edge.from_port;
    shown.to_section = job.graph.node(edge.to).name;
    shown.to_port = edge.to_port;
    shown.gradient = edge.gradient;
    shown.columns = edge.columns;
    shown.dtype = name_of(edge.dtype);
  }
  if (run.planned) {
    plan.step = static_cast<std::int64_t>(run.planned->plan.step.value());
    plan.__set_planned_ms(run.planned->schedule.makespan_ms);
    if (!run.planned->workload.tasks.empty()) plan.__set_lower_bound_ms(lower_bound_ms(run.planned->workload));
  }
  plan.effective_job = job.effective_job;
  return plan;
}

control::Metrics metrics_answer(const MetricsRows& rows) {
  control::Metrics metrics;
  metrics.steps = rows_of(rows.steps);
  metrics.validations = rows_of(rows.validations);
  metrics.first_step_row = rows.first_step_row;
  metrics.next_step_row = rows.next_step_row;
  metrics.first_validation_row = rows.first_validation_row;
  metrics.next_validation_row = rows.next_validation_row;
  return metrics;
}

}  // namespace maestro
