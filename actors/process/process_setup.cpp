// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>

#include "actors/control/control_place.hpp"
#include "actors/job/emulated_step_end.hpp"
#include "actors/job/headroom.hpp"
#include "actors/job/lane_text.hpp"
#include "actors/job/planning_options.hpp"
#include "actors/job/transfer_paths.hpp"
#include "actors/process/job_resolver.hpp"
#include "actors/process/process_state.hpp"
#include "actors/replica/section_replica.hpp"
#include "actors/run/data_source.hpp"
#include "actors/run/planner.hpp"
#include "runtime/core/usable_cores.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/device/cpu_device.hpp"
#include "runtime/observe/max_rss.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds start_limit(30000);
constexpr double bytes_per_mb = 1e6;

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

void ProcessRun::State::note(const std::string& line) {
  if (!plan.options.quiet) console.note("  note: " + line);
}

Device* ProcessRun::State::device(const ReplicaPlacement& at, LayoutRank of_rank) {
  const DeviceId& id = at.devices[of_rank.value()];
  const std::string name = text_of(id);
  // Sections that share a GPU have separate streams, so that either section computes while the other waits for a
  // message.
  auto& found = devices[{id, id.is_cuda() ? at.section : SectionId()}];
  if (found == nullptr && id.kind == DeviceId::Kind::emulated) {
    if (!emulated_clock) emulated_clock = std::make_shared<EmulatedClock>();
    found = std::make_unique<EmulatedDevice>(name, ops, emulated_clock);
  }
  if (found == nullptr && id.is_cuda()) {
    DeviceOptions options;
    options.priority = plan.graph.node(at.section).role == Role::frozen ? Priority::background : Priority::critical;
    options.deterministic = plan.train.deterministic;
    options.graphs = graph_use(plan.train.cuda_graphs);
    options.log = [this](const std::string& line) { note(line); };
    options.share = plan.sections[at.section.value()].config.share;
    options.index = static_cast<std::size_t>(id.index);  // place() has checked that it exists
    options.name = name;
    found = cuda_status().backend->open(options);
  }
  if (found == nullptr) {
    const bool pinned = id.kind == DeviceId::Kind::cpu;  // several devices share a core with --cpu-devices
    const int core = pinned ? id.index % static_cast<int>(usable_cores().size()) : -1;
    found = std::make_unique<CpuDevice>(name, core, ops);
  }
  return found.get();
}

void ProcessRun::State::make_shadows() {
  const bool check = plan.options.check_only;
  const bool required = plan.train.shadow_every > 0 && (several() || !check);
  const bool useful = several() && may_recover() && !plan.options.launch_info.several_hosts() && !has_emulated(plan);
  if (!(required || (useful && !check)) || memory.shadows) return;
  constexpr std::int64_t bytes_of_parameter = 3 * sizeof(float);  // a value and two moments
  std::int64_t bytes = 0;
  for (std::size_t index = 0; index < plan.sections.size(); ++index) {
    const GraphNode& node = plan.graph.nodes()[index];
    if (node.trained()) bytes += plan.held[index].all * node.layout.ranks() * bytes_of_parameter;
  }
  memory.shadows.emplace(prepared_files_folder(plan));
  const Status room = memory.shadows->room_for(static_cast<std::uint64_t>(bytes));
  if (required) room.or_throw();
  if (!room || check) memory.shadows.reset();
}

CoordinatorOptions ProcessRun::State::coordinator_options(const caf::actor& source) {
  const TrainConfig& train = plan.train;
  CoordinatorOptions options;
  options.graph = &plan.graph;
  options.schedule.first_step = start.first_step;
  options.schedule.steps = static_cast<std::uint64_t>(train.steps);
  if (plan.options.until > 0) options.schedule.steps = std::min(options.schedule.steps, plan.options.until);
  options.schedule.validate_every = static_cast<std::uint64_t>(train.validate_every);
  options.schedule.checkpoint_every = static_cast<std::uint64_t>(train.checkpoint_every);
  options.schedule.validate_at_end = plan.corpus->samples(Split::validation) > 0 && plan.options.until == 0;
  if (memory.shadows) options.schedule.shadow_every = static_cast<std::uint64_t>(train.shadow_every);
  if (memory.shadows) options.shadows = &memory.shadows->store();
  options.schedule.checkpoint_at_end = train.checkpoint_at_end;
  if (recovering()) options.schedule.owed = record->owed;
  options.schedule.pause_after = record->pause_after;
  options.schedule.keeps_state = !has_emulated(plan);
  options.ahead = train.ahead;
  options.global_batch = train.global_batch;
  options.seed = static_cast<std::uint64_t>(train.seed);
  options.origin = claim.origin;
  options.epoch_samples = plan.corpus->samples(Split::train);
  options.synchronous = scheduling_policy(plan)->synchronous();
  options.measure = !train.deterministic;
  options.predicted = plan.planned;
  options.finishing = [this] { rehearse(); };
  options.moves_seats = seats_may_move();
  options.global_clip = train.clip == ClipScope::global;
  options.joined_norms = joins_norms(plan);
  options.trained_until = trained_until();
  options.max_left_out = plan.max_bad_samples - static_cast<std::int64_t>(plan.corpus->left_out());
  options.record = record;
  options.journal = journal;
  options.guard = make_guard();
  options.figures = memory.figures;
  options.rollbacks = rollbacks();
  options.cursor = start.cursor;
  options.archive_every = options.schedule.archive_every = static_cast<std::uint64_t>(train.archive_every);
  options.archive_form = train.archive == ArchiveChoice::bf16 ? ArchiveForm::bf16 : ArchiveForm::full;
  options.archive.emplace(fs::path(train.out) / archive_folder);
  options.snapshots = &snapshots;
  options.console = &console;
  options.data_source = source;
  options.supervisor = supervisor;
  options.current_step = &current_step;
  options.events = &events;
  return options;
}

ProcessSummary ProcessRun::State::summary() const {
  const Network::Written written = network->written();
  ProcessSummary summary{process, max_rss_mb(), network->provider(), written.bytes, written.writes};
  for (const auto& [at, opened_device] : devices) {
    if (!at.first.is_cuda() || !opened_device) continue;  // null: it could not be opened
    summary.device_mb[text_of(at.first)] += static_cast<double>(opened_device->peak_bytes()) / bytes_per_mb;
  }
  return summary;
}

void ProcessRun::State::open_actors() {
  const milliseconds peer_timeout(static_cast<std::int64_t>(plan.train.peer_timeout_s * 1000));
  ActorSystemOptions options;
  options.networked = several();
  options.peer_timeout = peer_timeout;
  options.start_timeout = milliseconds(static_cast<std::int64_t>(plan.transport.start_timeout_s * 1000));
  options.several_hosts = plan.options.launch_info.several_hosts();
  if (job_start) options.keys = job_start->keys();
  options.application = rendezvous_info.secret;
  bound("the start of the actor system", start_limit);
  actors = std::make_unique<ActorEnvironment>(options);
  const bool recovers = started_by_rank_0() && plan.train.recover == RecoverChoice::restart;
  SupervisorOptions supervision;
  supervision.graph = &plan.graph;
  supervision.process = process;
  supervision.hosts = hosts;
  supervision.joining = joining();
  if (job_start) {
    supervision.host = job_start->host();
    supervision.stopped_child = std::bind_front(&JobStart::stopped_child, job_start, peer_timeout);
    supervision.connected = [this, recovers](caf::event_based_actor*) {
      if (replacements_may_come() || joining() > 0) return;  // they come by the same way
      actors->stop_listening();
      if (recovers) return job_start->tidy_start();  // another start may follow
      job_start->tidy();
    };
  }
  supervision.recovers = recovers;
  supervision.survives = may_survive();
  if (is_root()) supervision.may_recover = [this] { return may_recover(); };
  supervision.started_again = recovering();
  supervision.rescues = may_recover() && (stores_checkpoints() || !plan.options.launch_info.several_hosts());
  supervision.start_timeout = options.start_timeout;
  supervision.join_timeout = std::min(options.start_timeout, std::max(5 * peer_timeout, milliseconds(15000)));
  supervision.peer_timeout = peer_timeout;
  supervision.build = build_name();
  supervision.connect = [this](caf::event_based_actor* self, const std::string& host, std::uint16_t port, auto done,
                               auto failed) { actors->connect(self, host, port, std::move(done), std::move(failed)); };
  supervision.connect_transport = [this](const ProcessInfo& peer) {
    network->connect(peer.process, peer.endpoint, process_label(peer, plan.graph));
  };
  supervision.outcome = outcome;
  supervision.current_step = &current_step;
  supervision.summary = [this] {
    opened.close_all();  // OM-1
    ProcessSummary at_end = summary();
    for (const BuiltReplica& built : replicas) {  // whose work has ended
      for (std::uint32_t rank = 0; rank < built.runners.size(); ++rank) {
        at_end.device_mb[rank_text(plan.graph, built.place.section, built.place.replica, LayoutRank(rank))] =
            static_cast<double>(built.runners[rank]->working_bytes()) / bytes_per_mb;
      }
    }
    return at_end;
  };
  if (is_root()) supervision.stopping = [this] { return stopping.load(); };
  supervision.stop_run = [this] {
    if (!begun) return leave_before_the_start("a signal to another process");
    stop_in_order("a signal to another process");
  };
  supervision.seats = seat_options();
  supervisor = actors->system().spawn<Supervisor>(supervision);
  spawned.push_back(supervisor);
  supervised = true;
  bound({}, milliseconds(0));
}

void ProcessRun::State::build() {
  replicas = builder.build_all(own_places());
  const std::string listen = job_start ? job_start->listen_address() : plan.transport.listen;
  NetworkOptions options = network_options(plan.transport, listen);
  options.shared_memory = rendezvous_info.shared_memory;
  options.device_memory =
      TransferPaths(plan.graph, plan.places, plan.transport.force_rma).may_take(TransferPath::device_rma);
  bound("opening the network (transport.provider = " + plan.transport.provider + ")", start_limit);
  network = std::make_unique<Network>(options, several() || plan.transport.force_rma);
  bound({}, milliseconds(0));
}

void ProcessRun::State::spawn_coordinator(LocalActors& local) {
  caf::actor_system& system = actors->system();
  const Sampler sampler(static_cast<std::uint64_t>(plan.train.seed), plan.corpus->sources());
  // A detached actor: it reads samples, and must not delay heartbeats.
  const caf::actor source = system.spawn<DataSource, caf::detached>(
      supervisor, plan.corpus, sampler,
      DataSourceOptions{plan.train.global_batch, plan.train.validation_samples, start.cursor});
  describe_trace();
  StepPlannerOptions planning = planner_options(plan);
  planning.trained_until = trained_until();
  const caf::actor planner = system.spawn<Planner, caf::detached>(std::move(planning), &trace, supervisor);
  open_journal();
  CoordinatorOptions options = coordinator_options(source);
  options.planner = planner;
  coordinator = system.spawn<Coordinator>(std::move(options));
  local.coordinator = coordinator;
  local.own.insert(local.own.end(), {{source, "data source"}, {planner, "planner"}, {coordinator, "coordinator"}});
  spawned.insert(spawned.end(), {source, planner, coordinator});
}

ReplicaSpec ProcessRun::State::replica_spec(const BuiltReplica& built, const Seat& seat, Epoch epoch) {
  const ReplicaPlacement& at = built.place;
  ReplicaSpec spec;
  spec.graph = &plan.graph;
  spec.section = seat.section;
  spec.replica = seat.replica;
  spec.process = process;
  spec.largest = plan.largest;
  spec.limits = flow_limits(plan);
  if (plan.sections[at.section.value()].config.emulated()) {
    spec.emulated.passes = replica_costs(plan, at.section, seat.replica);
    const auto time_of = [](double ms) {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double, std::milli>(ms));
    };
    const EmulatedStepEnd end = emulated_step_end(plan, at.section);
    spec.emulated.sum = time_of(end.sum_ms);
    spec.emulated.step = time_of(end.step_ms);
  }
  spec.epoch = epoch;
  spec.again = epoch != rendezvous_info.epoch;
  spec.remote = network->open();
  spec.paths = TransferPaths(plan.graph, plan.places, plan.transport.force_rma);
  spec.opened = &opened;
  spec.log = [this](const std::string& line) { note(line); };
  spec.joined_norms = joins_norms(plan);
  const auto until = trained_until();
  if (const auto found = until.find(seat.section); found != until.end()) spec.trained_until = found->second;
  for (std::uint32_t index = 0; index < built.runners.size(); ++index) {
    spec.ranks.push_back({built.runners[index], device(at, LayoutRank(index)), at.devices[index]});
  }
  if (std::ranges::any_of(at.devices, &DeviceId::is_cuda)) {
    spec.backend = cuda_status().backend;
    spec.groups = {&plan.places, groups_end};
  }
  const auto gpu = std::ranges::find_if(plan.places, [&](const ReplicaPlacement& place) {
    return place.process == at.process && place.devices[0].is_cuda();
  });
  if (gpu != plan.places.end()) spec.pins = &device(*gpu, LayoutRank(0))->ops().memory();
  spec.host_ops = &ops;
  spec.collective_submit_mutex = &collective_submit_mutex;
  spec.network = network.get();
  spec.trace = &trace;
  spec.snapshots = &snapshots;
  if (!is_root()) spec.current_step = &current_step;  // on rank 0 the coordinator sets it
  spec.supervisor = supervisor;
  return spec;
}

OwnActor ProcessRun::State::spawn_replica(const BuiltReplica& built, const Seat& seat, Epoch epoch) {
  const caf::actor replica = actors->system().spawn<SectionReplica>(replica_spec(built, seat, epoch));
  spawned.push_back(replica);
  return {replica, label_of(seat.section, seat.replica)};
}

void ProcessRun::State::spawn_replicas(LocalActors& local) {
  caf::scoped_actor self(actors->system());
  for (const ReplicaPlacement& at : plan.places) {
    if (at.process != process || joins_later()) continue;
    const Seat& seat = seats.emplace_back(Seat{at.section, at.replica, process});
    local.own.push_back(spawn_replica(built_for(seat), seat, rendezvous_info.epoch));
    self->request(local.own.back().actor, std::chrono::seconds(30), AddressRequest{})
        .receive([&](const ReplicaAddress& address) { local.info.replicas.push_back(address); },
                 [&](const caf::error& problem) { throw JobError("start-up: " + actors->system().render(problem)); });
  }
}

/// Spawns the actors of this process, and sends their addresses through its supervisor.
void ProcessRun::State::introduce() {
  LocalActors local;
  network->route_failures(supervisor);
  if (is_root()) spawn_coordinator(local);
  spawn_replicas(local);
  local.info.process = process;
  local.info.identity = own_identity();
  local.info.build = build_name();
  local.info.endpoint = network->address();
  local.info.supervisor = supervisor;
  for (const BuiltReplica& built : replicas) {
    if (joins_later()) std::ranges::copy(texts_of(built.place.devices), std::back_inserter(local.info.devices));
  }
  if (job_start) {
    local.info.host = job_start->host();
    local.info.actors_host = is_root() ? rendezvous_info.root_address : job_start->gate_host();
    local.info.actors_port =
        is_root() ? rendezvous_info.root_port : actors->publish(supervisor, local.info.actors_host, 0);
  }
  open_control();
  open_http();
  begun = true;
  send_from_outside(supervisor, local);
  if (is_root()) watch_progress();
}

/// Returns the keys of the job start, else those of options or job; null: none.
std::shared_ptr<const KeySet> ProcessRun::State::keys() const {
  if (job_start && job_start->keys()) return job_start->keys();
  const fs::path folder = plan.options.keys.empty() ? fs::path(plan.transport.keys) : plan.options.keys;
  return folder.empty() ? nullptr : std::make_shared<const KeySet>(load_key_set(folder));
}

void ProcessRun::State::open_control() {
  if (!is_root() || plan.options.control == "none") return;
  if (!several()) sweep_runtime_folder();  // with several processes JobStart has swept it
  ControlServiceOptions options;
  options.address = plan.options.control;
  options.keys = keys();
  options.job = &plan;
  options.system = &actors->system();
  options.coordinator = coordinator;
  // Answers of other hosts take a round trip; with all answers present no time is spent waiting.
  if (plan.options.launch_info.several_hosts()) options.status_patience = milliseconds(200);
  options.stop_run = [this] { stop_in_order({}); };
  options.let_join = [this](const SeatRequest& request) { return let_join(request); };
  options.let_leave = [this](ProcessId leaver) { return let_leave(leaver); };
  options.console = &console;
  try {
    control = std::make_unique<ControlService>(std::move(options));
  } catch (const JobError& problem) {
    if (!plan.options.control.empty() || plan.options.pause_after) throw;
    return console.note(std::string("  note: this run has no control service: ") + problem.what());
  }
  constexpr std::string_view local = "unix:";
  if (control->address().starts_with(local)) control_socket = control->address().substr(local.size());
  if (!plan.options.quiet && !plan.options.control.empty()) console.note("  control at " + control->address());
}

void ProcessRun::State::open_http() {
  if (!is_root() || plan.options.http.empty()) return;
  HttpServiceOptions options;
  options.address = memory.http.empty() ? plan.options.http : memory.http;  // a recovered run keeps its port
  options.keys = keys();
  options.job = &plan;
  options.system = &actors->system();
  options.coordinator = coordinator;
  options.events = &events;
  options.summary = [this] { return summary(); };
  options.version = MAESTRO_VERSION;
  options.instruction_set = cpu::name_of(cpu::best_isa());
  options.keeps_record = journal != nullptr;
  http = std::make_unique<HttpService>(std::move(options));
  if (memory.http.empty() && !plan.options.quiet) console.note("  live page: http://" + http->address() + "/");
  memory.http = http->address();
}

}  // namespace maestro
