// SPDX-License-Identifier: Apache-2.0
#include "actors/process/built_process.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "actors/job/emulated_step_end.hpp"
#include "actors/job/lane_text.hpp"
#include "actors/job/planning_options.hpp"
#include "actors/job/transfer_paths.hpp"
#include "actors/process/model_folders.hpp"
#include "actors/replica/section_replica.hpp"
#include "runtime/core/usable_cores.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/device/cpu_device.hpp"
#include "runtime/observe/max_rss.hpp"

namespace maestro {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds start_limit(30000);

double megabytes(auto bytes) {
  return static_cast<double>(bytes) / 1e6;
}

TraceOptions trace_options(const ResolvedJob& job) {
  TraceOptions options;
  options.on = !job.options.trace.empty();
  return options;
}

NetworkOptions network_options(const TransportConfig& transport, const std::string& listen) {
  NetworkOptions options;
  options.provider = transport.provider;
  options.listen_address = listen;
  options.timeout_ms = static_cast<std::int64_t>(transport.timeout_s * 1000);
  options.force_rma = transport.force_rma;
  options.chunk_bytes = static_cast<std::size_t>(transport.chunk_kib) << 10;
  return options;
}

GraphUse graph_use(CudaGraphs setting) {
  if (setting == CudaGraphs::always) return GraphUse::always;
  return setting == CudaGraphs::never ? GraphUse::never : GraphUse::where_they_pay;
}
}  // namespace

BuiltProcess::BuiltProcess(ProcessPart& part)
    : part_(part),
      trace_(part.process, "process " + std::to_string(part.place.rank), trace_options(part.plan)),
      snapshots_(CheckpointStore(std::filesystem::path(part.plan.train.out) / "checkpoints",
                                 {part.plan.train.keep_checkpoints, {}, prepared_files_folder(part.plan)}),
                 part.plan.train.shadow_every > 0),
      builder_(part.plan, part.memory.ops, part.start, part.memory.frozen, groups_end_,
               [this](const ReplicaPlacement& at, LayoutRank of_rank) -> Device& { return *device(at, of_rank); }) {}

BuiltProcess::~BuiltProcess() {
  stop_threads();
  stop_actors();
}

void BuiltProcess::open_actors(const ActorSystemOptions& options) {
  part_.bound("the start of the actor system", start_limit);
  actors_ = std::make_unique<ActorEnvironment>(options);
}

void BuiltProcess::build() {
  const ResolvedJob& plan = part_.plan;
  replicas_ = builder_.build_all(part_.own_places());
  NetworkOptions options =
      network_options(plan.transport, part_.job_start ? part_.job_start->access().listen() : plan.transport.listen);
  options.shared_memory = part_.rendezvous_info.shared_memory;
  options.device_memory =
      TransferPaths(plan.graph, plan.places, plan.transport.force_rma).may_take(TransferPath::device_rma);
  part_.bound("opening the network (transport.provider = " + plan.transport.provider + ")", start_limit);
  network_ = std::make_unique<Network>(options, part_.several() || plan.transport.force_rma);
  part_.bound({}, milliseconds(0));
}

Device* BuiltProcess::device(const ReplicaPlacement& at, LayoutRank of_rank) {
  const DeviceId& id = at.devices[of_rank.value()];
  // Sections that share a GPU have separate streams, so that one computes while the other waits for a message.
  auto& found = devices_[{id, id.is_cuda() ? at.section : SectionId()}];
  if (found == nullptr) found = open_device(at, id);
  return found.get();
}

std::unique_ptr<Device> BuiltProcess::open_device(const ReplicaPlacement& at, const DeviceId& id) {
  const ResolvedJob& plan = part_.plan;
  const std::string name = text_of(id);
  if (id.kind == DeviceId::Kind::emulated) {
    if (!emulated_clock_) emulated_clock_ = std::make_shared<EmulatedClock>();
    return std::make_unique<EmulatedDevice>(name, part_.memory.ops, emulated_clock_);
  }
  if (!id.is_cuda()) {
    const bool pinned = id.kind == DeviceId::Kind::cpu;  // several devices share a core with --cpu-devices
    const int core = pinned ? id.index % static_cast<int>(usable_cores().size()) : -1;
    return std::make_unique<CpuDevice>(name, core, part_.memory.ops);
  }
  DeviceOptions options;
  options.priority = plan.graph.node(at.section).role == Role::frozen ? Priority::background : Priority::critical;
  options.deterministic = plan.train.deterministic;
  options.graphs = graph_use(plan.train.cuda_graphs);
  options.log = [this](const std::string& line) { part_.note(line); };
  options.share = plan.sections[at.section.value()].config.share;
  options.index = static_cast<std::size_t>(id.index);  // place() has checked that it exists
  options.name = name;
  return cuda_status().backend->open(options);
}

WeightEdge BuiltProcess::weight_edge(SectionId section) const {
  WeightEdge edge;
  const ResolvedJob& plan = part_.plan;
  const bool sends = plan.graph.publishes(section);
  if (!plan.rollouts || !plan.rollouts->section || (!sends && *plan.rollouts->section != section)) return edge;
  const StepId start(part_.start.first_step);
  edge.staleness = plan.rollouts->config.staleness;
  edge.last_step = StepId(static_cast<std::uint64_t>(plan.train.steps));
  edge.dtype = plan.sections[plan.rollouts->section->value()].config.precision;
  for (StepId step = version_of(start, edge.staleness); sends && step < start; step = StepId(step.value() + 1)) {
    const std::string& name = plan.graph.node(section).section_name();
    auto files = read_earlier_weights(part_.start.checkpoint, name, step.value()).value_or_throw();
    edge.stored.push_back({step, std::make_shared<const std::vector<SafetensorsFile>>(std::move(files))});
  }
  return edge;
}

ReplicaSpec BuiltProcess::replica_spec(const BuiltReplica& built, const Placement& placement, Epoch epoch) {
  const ReplicaPlacement& at = built.place;
  ReplicaSpec spec;
  spec.graph = &part_.plan.graph;
  spec.section = placement.section;
  spec.replica = placement.replica;
  spec.process = part_.process;
  spec.largest = part_.plan.largest;
  spec.limits = flow_limits(part_.plan);
  if (part_.plan.sections[at.section.value()].config.emulated()) {
    spec.emulated.passes = replica_costs(part_.plan, at.section, placement.replica);
    const auto time_of = [](double ms) {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double, std::milli>(ms));
    };
    const EmulatedStepEnd end = emulated_step_end(part_.plan, at.section);
    spec.emulated.sum = time_of(end.sum_ms);
    spec.emulated.step = time_of(end.step_ms);
  }
  spec.epoch = epoch;
  spec.again = epoch != part_.rendezvous_info.epoch;
  spec.shares = at.replica != placement.replica;
  spec.remote = network_->open();
  spec.paths = TransferPaths(part_.plan.graph, part_.plan.places, part_.plan.transport.force_rma);
  spec.opened = &opened_;
  spec.log = [this](const std::string& line) { part_.note(line); };
  spec.joined_norms = joins_norms(part_.plan);
  spec.weights = weight_edge(placement.section);
  const auto until = part_.trained_until();
  if (const auto found = until.find(placement.section); found != until.end()) spec.trained_until = found->second;
  for (std::uint32_t index = 0; index < built.runners.size(); ++index) {
    spec.ranks.push_back({built.runners[index], device(at, LayoutRank(index)), at.devices[index]});
  }
  if (std::ranges::any_of(at.devices, &DeviceId::is_cuda)) {
    spec.backend = cuda_status().backend;
    spec.groups = {&part_.plan.places, groups_end_};
  }
  const auto gpu = std::ranges::find_if(part_.plan.places, [&](const ReplicaPlacement& place) {
    return place.process == at.process && place.devices[0].is_cuda();
  });
  if (gpu != part_.plan.places.end()) spec.pins = &device(*gpu, LayoutRank(0))->ops().memory();
  spec.host_ops = &part_.memory.ops;
  spec.turns = &turns_;
  spec.network = network_.get();
  spec.trace = &trace_;
  spec.snapshots = &snapshots_;
  if (!part_.is_root()) spec.current_step = &part_.current_step;  // on rank 0 the coordinator sets it
  spec.supervisor = supervisor_;
  return spec;
}

const BuiltReplica& BuiltProcess::built_for(const Placement& placement) const {
  const auto has_placement = [&](const BuiltReplica& built) {
    return built.place.section == placement.section && built.place.replica == placement.replica;
  };
  if (const auto own = std::ranges::find_if(replicas_, has_placement); own != replicas_.end()) return *own;
  const GraphNode& node = part_.plan.graph.node(placement.section);
  return *std::ranges::find_if(replicas_, [&](const BuiltReplica& built) {
    return built.place.section == placement.section &&
           node.layout_of(built.place.replica) == node.layout_of(placement.replica);
  });
}

GenerationOptions BuiltProcess::generation_options() const {
  const ResolvedJob& plan = part_.plan;
  const GeneratorConfig& config = plan.rollouts->config;
  GenerationOptions options;
  options.slots = config.slots;
  options.positions = plan.corpus->max_length();
  options.limits = {config.max_tokens, plan.rollouts->stop_tokens, plan.corpus->vocabulary()};
  options.sampling = sampling_of(config);
  return options;
}

OwnActor BuiltProcess::spawn_replica(const Placement& placement, Epoch epoch) {
  if (part_.plan.graph.node(placement.section).generates()) {
    keep(actors_->system().spawn<GenerationReplica>(replica_spec(built_for(placement), placement, epoch),
                                                    generation_options()));
    return {spawned_.back(), part_.label_of(placement.section, placement.replica)};
  }
  keep(actors_->system().spawn<SectionReplica>(replica_spec(built_for(placement), placement, epoch)));
  return {spawned_.back(), part_.label_of(placement.section, placement.replica)};
}

void BuiltProcess::set_supervisor(const caf::actor& supervisor) {
  supervisor_ = supervisor;
  keep(supervisor);
}

void BuiltProcess::set_coordinator(const caf::actor& coordinator) {
  coordinator_ = coordinator;
  keep(coordinator);
}

ProcessSummary BuiltProcess::summary() const {
  const Network::Written written = network_->written();
  ProcessSummary summary{part_.process, max_rss_mb(), network_->provider(), written.bytes, written.writes};
  for (const auto& [at, opened_device] : devices_) {
    if (!at.first.is_cuda() || !opened_device) continue;  // null: it could not be opened
    summary.device_mb[text_of(at.first)] += megabytes(opened_device->peak_bytes());
  }
  return summary;
}

ProcessSummary BuiltProcess::summary_at_end() {
  opened_.close_all();  // OM-1
  ProcessSummary at_end = summary();
  for (const BuiltReplica& built : replicas_) {  // their work has ended
    for (std::uint32_t rank = 0; rank < built.runners.size(); ++rank) {
      at_end.device_mb[rank_text(part_.plan.graph, built.place.section, built.place.replica, LayoutRank(rank))] =
          megabytes(built.runners[rank]->working_bytes());
    }
  }
  return at_end;
}

void BuiltProcess::abandon(ProcessId process) {
  if (network_) network_->abandon(process);
}

void BuiltProcess::stop_threads() {
  part_.begin_part("stopping the devices");
  end_groups("the run has ended");  // before devices stop, as their streams may wait for a peer
  for (const BuiltReplica& replica : replicas_) replica.abort("the run has ended");
  turns_.stop();
  for (auto& [id, made] : devices_) {
    if (made) made->stop();  // null: it could not be opened
  }
  opened_.close_all();
  if (emulated_clock_) emulated_clock_->stop();
  part_.begin_part("writing the last snapshots");
  snapshots_.stop();
  part_.begin_part("closing the network");
  stop_network();
}

void BuiltProcess::stop_network() {
  if (network_) network_->stop();
}

void BuiltProcess::stop_actors() {
  part_.begin_part("ending the actors");
  coordinator_ = nullptr;
  supervisor_ = nullptr;
  for (const caf::actor& actor : spawned_) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  spawned_.clear();
  actors_.reset();
}

}  // namespace maestro
