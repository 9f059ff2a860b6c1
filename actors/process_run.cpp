#include "actors/process_run.hpp"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <mutex>
#include <thread>

#include "actors/actor_environment.hpp"
#include "actors/control/control_service.hpp"
#include "actors/coordinator.hpp"
#include "actors/data_source.hpp"
#include "actors/departure.hpp"
#include "actors/launch/launcher.hpp"
#include "actors/launch/listen_address.hpp"
#include "actors/planner.hpp"
#include "actors/planning_options.hpp"
#include "actors/preflight.hpp"
#include "actors/replica_builder.hpp"
#include "actors/run_report.hpp"
#include "actors/section_replica.hpp"
#include "actors/signal_watcher.hpp"
#include "actors/supervisor.hpp"
#include "actors/transport_bridge.hpp"
#include "runtime/device/cpu_device.hpp"
#include "runtime/device/emulated_device.hpp"
#include "runtime/observe/max_rss.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "sections/model_config.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

NetworkOptions network_options(const TransportConfig& transport, const std::string& listen) {
  NetworkOptions options;
  options.provider = transport.provider;
  options.listen_address = listen;
  options.timeout_ms = static_cast<std::int64_t>(transport.timeout_s * 1000);
  options.force_rma = transport.force_rma;
  options.chunk_bytes = static_cast<std::size_t>(transport.chunk_kib) << 10;
  return options;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

struct ProcessRun::State {
  State(const JobPlan& job, Console& terminal, JobStart* start_of_job)
      : plan(job),
        console(terminal),
        job_start(start_of_job),
        place(job.options.run_place.place),
        rank(static_cast<std::uint32_t>(place.rank)),
        trace(rank, "process " + std::to_string(place.rank), trace_options(job)),
        snapshots(CheckpointStore(fs::path(job.train.out) / "checkpoints", {job.train.keep_checkpoints, {}})),
        record(std::make_shared<RunRecord>()) {}

  static TraceOptions trace_options(const JobPlan& job) {
    TraceOptions options;
    options.on = !job.options.trace.empty();
    return options;
  }
  [[nodiscard]] bool is_root() const { return place.rank == 0; }
  [[nodiscard]] bool several() const { return place.processes > 1; }
  [[nodiscard]] fs::path trace_part(std::int64_t of_rank) const {
    return plan.options.trace.string() + ".part" + std::to_string(of_rank);
  }

  const JobPlan& plan;
  Console& console;
  JobStart* job_start;  // null: this process is alone
  ProcessPlace place;
  ProcessRank rank;
  TraceRecorder trace;
  SnapshotWriter snapshots;
  std::shared_ptr<RunRecord> record;
  std::atomic<std::uint64_t> current_step = 0;
  std::shared_ptr<OutcomePromise> outcome = std::make_shared<OutcomePromise>();
  cpu::CpuOperatorTable ops;
  std::shared_ptr<EmulatedClock> emulated_clock;  // made with the first emulated device
  std::map<std::string, std::unique_ptr<Device>> devices;
  std::mutex gang;  // ReplicaSpec::gang
  StartPoint start;
  Meeting meeting;
  ReplicaBuilder builder{plan, ops, start};
  std::vector<BuiltReplica> replicas;
  std::unique_ptr<Network> network;
  std::unique_ptr<ActorEnvironment> actors;  // after everything that actors use: destroyed first (PR-1)
  std::vector<caf::actor> spawned;
  caf::actor supervisor;
  caf::actor coordinator;
  std::atomic<bool> begun = false;          // there is a coordinator to interrupt
  std::unique_ptr<ControlService> control;  // of rank 0; may be absent. Before the actors go (PR-1)

  void check_surroundings() const;
  [[nodiscard]] std::shared_ptr<const KeySet> keys() const;
  void open_control();
  Device* device(const std::string& name);
  void open_actors();
  void meet(Launcher& launcher);
  [[nodiscard]] caf::actor find_root();
  [[nodiscard]] JobText job_text() const;
  [[nodiscard]] std::string build_name() const;
  void build();
  void spawn_bridge(LocalActors& local);
  void spawn_coordinator(LocalActors& local);
  void spawn_replicas(LocalActors& local);
  void introduce();
  void ignore_signals() const;
  void ignore_termination() const;
  CoordinatorOptions coordinator_options(const caf::actor& source) const;
  ProcessSummary summary() const;
  void stop();
  RunResult succeed(const RunOutcome& outcome);
  int fail(const RunOutcome& outcome, Launcher& launcher);
  void stop_in_order();
  void interrupted(int count, Launcher& launcher);
  void write_outputs(RunResult& result, const ProcessTotals& totals);
  void print_header() const;
  /// " on host b", where there are several.
  [[nodiscard]] std::string on_host(std::uint32_t host) const;
};

void ProcessRun::State::check_surroundings() const {
  if (!is_root()) return;  // rank 0 has looked, and listens by now
  check_writable_folder(plan.train.out, "train.out");
  if (!plan.options.report.empty()) check_writable_file(plan.options.report, "--report");
  if (!plan.options.trace.empty()) check_writable_file(plan.options.trace, "--trace");
  TransportConfig transport = plan.transport;
  if (job_start) transport.listen = job_start->listen_address();
  if (several()) check_port_free(transport);
  if (several() || plan.transport.force_rma) check_provider(transport);
}

Device* ProcessRun::State::device(const std::string& name) {
  auto& found = devices[name];
  if (found == nullptr && name.starts_with("emulated:")) {
    if (!emulated_clock) emulated_clock = std::make_shared<EmulatedClock>();
    found = std::make_unique<EmulatedDevice>(name, ops, emulated_clock);
  }
  if (found == nullptr) {
    const bool pinned = name.starts_with("cpu:");  // with --cpu-devices several devices share a core
    const int core = pinned ? std::stoi(name.substr(4)) % static_cast<int>(usable_cores().size()) : -1;
    found = std::make_unique<CpuDevice>(name, core, ops);
  }
  return found.get();
}

CoordinatorOptions ProcessRun::State::coordinator_options(const caf::actor& source) const {
  const TrainConfig& train = plan.train;
  CoordinatorOptions options;
  options.graph = &plan.graph;
  options.schedule.first_step = start.first_step;
  options.schedule.steps = static_cast<std::uint64_t>(train.steps);
  options.schedule.validate_every = static_cast<std::uint64_t>(train.validate_every);
  options.schedule.checkpoint_every = static_cast<std::uint64_t>(train.checkpoint_every);
  options.schedule.validate_at_end = plan.corpus->samples(Split::validation) > 0;
  options.schedule.checkpoint_at_end = train.checkpoint_at_end;
  options.schedule.keeps_state = !has_emulated(plan);
  options.ahead = train.ahead;
  options.global_batch = train.global_batch;
  options.seed = static_cast<std::uint64_t>(train.seed);
  options.epoch_samples = plan.corpus->samples(Split::train);
  options.synchronous = scheduling_policy(plan)->synchronous();
  options.measure = !train.deterministic;
  options.global_clip = train.clip == "global";
  options.max_left_out = plan.max_bad_samples - static_cast<std::int64_t>(plan.corpus->left_out());
  options.record = record;
  options.snapshots = const_cast<SnapshotWriter*>(&snapshots);
  options.console = &console;
  options.data_source = source;
  options.supervisor = supervisor;
  options.current_step = const_cast<std::atomic<std::uint64_t>*>(&current_step);
  return options;
}

ProcessSummary ProcessRun::State::summary() const {
  const Network::Written written = network->written();
  return {rank, max_rss_mb(), network->provider(), written.bytes, written.writes};
}

void ProcessRun::State::open_actors() {
  const milliseconds peer_timeout(static_cast<std::int64_t>(plan.train.peer_timeout_s * 1000));
  ActorSystemOptions options;
  options.networked = several();
  options.peer_timeout = peer_timeout;
  if (job_start) options.keys = job_start->keys();
  options.application = meeting.secret;
  actors = std::make_unique<ActorEnvironment>(options);

  SupervisorOptions supervision;
  supervision.graph = &plan.graph;
  supervision.rank = rank;
  supervision.processes = place.processes;
  supervision.hosts = place.hosts;
  if (job_start) {
    supervision.host = job_start->host();
    supervision.connected = [this] { job_start->tidy(); };
  }
  supervision.peer_timeout = peer_timeout;
  supervision.build = build_name();
  supervision.connect = [this](caf::event_based_actor* self, const std::string& host, std::uint16_t port, auto done,
                               auto failed) { actors->connect(self, host, port, std::move(done), std::move(failed)); };
  supervision.outcome = outcome;
  supervision.current_step = &current_step;
  supervision.summary = [this] { return summary(); };
  supervisor = actors->system().spawn<Supervisor>(supervision);
  spawned.push_back(supervisor);
}

/// Brings the processes together, and this one's supervisor to that of rank 0.
void ProcessRun::State::meet(Launcher& launcher) {
  JoinRoot root;
  if (job_start && !is_root()) {
    meeting = job_start->join(job_text());
    open_actors();
    root.root = find_root();
  } else if (job_start) {
    meeting =
        job_start->gather(launcher, job_text(), [this](const Meeting& met, const std::string& address, auto port) {
          meeting = met;
          open_actors();
          return actors->publish(supervisor, address, static_cast<std::uint16_t>(port));
        });
    job_start->route_child_ends([to = supervisor](ProcessRank child, const std::string& how) {
      tell_from_outside(to, ChildEnded{child, how});
    });
    root.root = supervisor;
  } else {
    meeting = new_meeting();
    open_actors();
    root.root = supervisor;
  }
  tell_from_outside(supervisor, root);
}

/// Rank 0's supervisor, over a connection that has carried a message each way (Supervisor::greet).
caf::actor ProcessRun::State::find_root() {
  constexpr int most_tries = 10;
  caf::scoped_actor self(actors->system());
  std::string problem;
  for (int tries = 0; tries < most_tries; ++tries) {
    const caf::actor found = actors->find(meeting.root_address, meeting.root_port, milliseconds(10000));
    bool answered = false;
    self->request(found, std::chrono::seconds(5), Greeting{rank})
        .receive([&](const Greeting&) { answered = true; },
                 [&](const caf::error& error) { problem = actors->system().render(error); });
    if (answered) return found;
  }
  throw JobError(
      "cannot talk to rank 0 at " + meeting.root_address + ":" + std::to_string(meeting.root_port) + ": " + problem,
      ErrorCode::peer_lost);
}

/// The job and all else that must be the same in every process for them to fit together.
JobText ProcessRun::State::job_text() const {
  JobText text;
  text.job = plan.effective_job +
             "\n[corpus]\ntraining_samples = " + std::to_string(plan.corpus->samples(Split::train)) +
             "\nvalidation_samples = " + std::to_string(plan.corpus->samples(Split::validation)) + "\n\n[places]\n";
  for (const ReplicaPlace& at : plan.places) {
    text.job += plan.graph.node(at.section).name + ".replica" + std::to_string(at.replica.value()) + " = \"" +
                listed(at.devices) + " of process " + std::to_string(at.rank.value()) + "\"\n";
  }
  const bool stores = plan.train.checkpoint_at_end || plan.train.checkpoint_every > 0;
  if (stores) text.shared_folder = plan.train.out;
  return text;
}

std::string ProcessRun::State::build_name() const {
  return std::string("maestro ") + MAESTRO_VERSION + " job " + plan.name;
}

void ProcessRun::State::build() {
  replicas = builder.build_all(rank);
  const std::string listen = job_start ? job_start->listen_address() : plan.transport.listen;
  network = std::make_unique<Network>(network_options(plan.transport, listen), several() || plan.transport.force_rma);
}

void ProcessRun::State::spawn_bridge(LocalActors& local) {
  const auto grace = milliseconds(static_cast<std::int64_t>(plan.train.peer_timeout_s * 1500));
  local.bridge = actors->system().spawn<TransportBridge>(network.get(), &plan.graph, supervisor, grace);
  network->route_failures(supervisor);
  spawned.push_back(local.bridge);
}

void ProcessRun::State::spawn_coordinator(LocalActors& local) {
  caf::actor_system& system = actors->system();
  const Sampler sampler(static_cast<std::uint64_t>(plan.train.seed), plan.corpus->samples(Split::train));
  const caf::actor source = system.spawn<DataSource>(
      plan.corpus, sampler, DataSourceOptions{plan.train.global_batch, plan.train.validation_samples});
  const caf::actor planner = system.spawn<Planner, caf::detached>(planner_options(plan), supervisor);
  CoordinatorOptions options = coordinator_options(source);
  options.planner = planner;
  coordinator = system.spawn<Coordinator>(std::move(options));
  local.coordinator = coordinator;
  spawned.insert(spawned.end(), {source, planner, coordinator});
}

void ProcessRun::State::spawn_replicas(LocalActors& local) {
  caf::actor_system& system = actors->system();
  caf::scoped_actor self(system);
  for (const BuiltReplica& built : replicas) {
    const ReplicaPlace& at = built.place;
    ReplicaSpec spec;
    spec.graph = &plan.graph;
    spec.section = at.section;
    spec.replica = at.replica;
    spec.rank = rank;
    spec.largest = plan.largest;
    spec.limits = flow_limits(plan);
    if (plan.sections[at.section.value()].config.emulated()) {
      spec.emulated_ms = [costs = CostModel(plan.cost, plan.unit_per_ms), section = at.section](
                             std::span<const SampleRef> samples) { return costs.of(section, samples); };
    }
    spec.epoch = meeting.epoch;
    spec.remote = network->open();
    spec.global_clip = plan.train.clip == "global";
    for (std::size_t index = 0; index < built.runners.size(); ++index) {
      spec.ranks.push_back({built.runners[index], device(at.devices[index])});
    }
    spec.gang = &gang;
    spec.network = network.get();
    spec.trace = &trace;
    spec.snapshots = &snapshots;
    if (!is_root()) spec.current_step = &current_step;  // rank 0 has the coordinator, which knows better
    spec.supervisor = supervisor;
    spec.bridge = local.bridge;
    const caf::actor replica = system.spawn<SectionReplica>(std::move(spec));
    spawned.push_back(replica);
    self->request(replica, std::chrono::seconds(30), AddressRequest{})
        .receive([&](const ReplicaAddress& address) { local.hello.replicas.push_back(address); },
                 [&](const caf::error& problem) { throw JobError("start-up: " + system.render(problem)); });
  }
}

/// Spawns what this process is to run, and has its supervisor introduce it.
void ProcessRun::State::introduce() {
  LocalActors local;
  spawn_bridge(local);
  if (is_root()) spawn_coordinator(local);
  spawn_replicas(local);
  local.hello.rank = rank;
  local.hello.pid = getpid();
  local.hello.build = build_name();
  local.hello.endpoint = network->address();
  local.hello.supervisor = supervisor;
  if (job_start) {
    local.hello.host = job_start->host();
    local.hello.actors_host = job_start->listen_address();
    if (!is_root()) local.hello.actors_port = actors->publish(supervisor, local.hello.actors_host, 0);
  }
  open_control();
  begun = is_root();
  tell_from_outside(supervisor, local);
}

/// Of the job, where it has some.
std::shared_ptr<const KeySet> ProcessRun::State::keys() const {
  if (job_start && job_start->keys()) return job_start->keys();
  const fs::path folder = plan.options.keys.empty() ? fs::path(plan.transport.keys) : plan.options.keys;
  return folder.empty() ? nullptr : std::make_shared<const KeySet>(load_key_set(folder));
}

void ProcessRun::State::open_control() {
  if (!is_root() || plan.options.control == "none") return;
  ControlServiceOptions options;
  options.address = plan.options.control;
  options.keys = keys();
  options.job = &plan;
  options.system = &actors->system();
  options.coordinator = coordinator;
  options.stop_run = [this] { stop_in_order(); };
  options.console = &console;
  try {
    control = std::make_unique<ControlService>(std::move(options));
  } catch (const JobError& problem) {
    if (!plan.options.control.empty()) throw;
    return console.note(std::string("  note: this run cannot be watched or steered: ") + problem.what());
  }
  if (!plan.options.quiet && !plan.options.control.empty()) console.note("  control at " + control->address());
}

void ProcessRun::State::stop() {
  control.reset();
  for (const BuiltReplica& replica : replicas) replica.abort("the run has ended");
  for (auto& [name, made] : devices) made->stop();
  if (emulated_clock) emulated_clock->stop();
  snapshots.stop();
  if (network) network->stop();
  begun = false;
  if (job_start) job_start->route_child_ends({});
  coordinator = nullptr;
  supervisor = nullptr;
  for (const caf::actor& actor : spawned) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  spawned.clear();
  actors.reset();
}

void ProcessRun::State::write_outputs(RunResult& result, const ProcessTotals& totals) {
  if (!plan.options.report.empty()) {
    make_report(plan, *record, totals).write(plan.options.report).or_throw();
    result.report = plan.options.report.string();
  }
  if (!plan.options.trace.empty()) {
    std::vector<fs::path> parts;
    for (std::int64_t at = 0; at < plan.options.processes; ++at) parts.push_back(trace_part(at));
    merge_traces(parts, plan.options.trace).or_throw();
    for (const fs::path& part : parts) fs::remove(part);
    result.trace = plan.options.trace.string();
  }
  if (record->checkpoint.empty()) return;
  for (const GraphNode& node : plan.graph.nodes()) {
    if (!node.trained()) continue;
    result.weights[node.section_name()] = (fs::path(record->checkpoint) / node.section_name()).string();
  }
}

RunResult ProcessRun::State::succeed(const RunOutcome& ended) {
  console.finish();
  const ProcessTotals totals = total_of(ended.processes);
  RunResult result = make_result(*record, totals);
  if (is_root()) write_outputs(result, totals);
  return result;
}

int ProcessRun::State::fail(const RunOutcome& ended, Launcher& launcher) {
  console.finish();
  if (control) control->stop();  // its socket is not to stay behind
  if (!ended.error.empty()) console.error(ended.error);
  if (!several()) {
    stop();
    return 1;
  }
  job_start->tidy();
  Departure departure;  // PR-2
  departure.lost_pids = ended.lost_pids;
  departure.close = [this] {
    control.reset();
    if (network) network->stop();
  };
  depart(launcher, departure);
}

void ProcessRun::State::stop_in_order() {
  console.note(std::string("stopping after this step") + (has_emulated(plan) ? "" : "; a checkpoint is being written") +
               " (Ctrl-C again to leave at once)");
  tell_from_outside(coordinator, Interrupt{});
}

void ProcessRun::State::interrupted(int count, Launcher& launcher) {
  if (count == 1 && begun) return stop_in_order();
  console.finish();
  if (job_start) job_start->tidy();
  Departure departure;
  departure.status = 130;
  departure.patience = milliseconds(0);
  depart(launcher, departure);
}

/// scancel and mpirun tell all processes to end; rank 0 ends the others in order.
void ProcessRun::State::ignore_termination() const {
  if (!is_root() && place.launcher != "maestro") signal(SIGTERM, SIG_IGN);
}

void ProcessRun::State::ignore_signals() const {
  signal(SIGINT, SIG_IGN);  // Ctrl-C reaches the whole group; rank 0 decides what it means
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_UNBLOCK, &term, nullptr);
}

std::string ProcessRun::State::on_host(std::uint32_t host) const {
  const RunPlace& run = plan.options.run_place;
  if (!run.several_hosts()) return {};
  return " on host " + (run.host_names.empty() ? std::to_string(host) : run.host_names[host]);
}

void ProcessRun::State::print_header() const {
  if (plan.options.quiet || !is_root()) return;
  std::string header = "job " + plan.name + ": " + std::to_string(plan.train.steps) + " steps of " +
                       std::to_string(plan.train.global_batch) + " samples, " + std::to_string(plan.options.processes) +
                       (several() ? " processes" : " process") + ", tensors by " + network->provider();
  console.note(header);
  console.note("  corpus    " + plan.corpus->describe());
  for (const auto& at : plan.places) {
    const GraphNode& node = plan.graph.node(at.section);
    if (node.mode == Mode::source) continue;
    console.note("  " + node.name + " replica " + std::to_string(at.replica.value()) + " on " + listed(at.devices) +
                 " of process " + std::to_string(at.rank.value()) + on_host(at.host) + ", " +
                 std::string(name_of(plan.sections[at.section.value()].config.precision)) +
                 (node.trained() ? ", trained" : ", frozen"));
  }
  for (const std::string& note : plan.notes) console.note("  note: " + note);
  if (start.first_step > 1) console.note("  resuming after step " + std::to_string(start.first_step - 1));
}

ProcessRun::ProcessRun(const JobPlan& plan, Console& console, JobStart* start)
    : state_(std::make_unique<State>(plan, console, start)) {}
ProcessRun::~ProcessRun() {
  state_->stop();
}

void ProcessRun::prepare() {
  State& state = *state_;
  state.start = find_start_point(state.plan);
  state.record->resumed_from = state.start.first_step - 1;
  for (std::size_t index = 0; index < state.plan.sections.size(); ++index) {
    const SectionConfig& config = state.plan.sections[index].config;
    if (config.weights.empty()) continue;
    SectionContext context;
    context.name = config.name;
    context.precision = config.precision;
    context.prototype = true;
    context.ops = &state.ops;
    check_same_model(state.plan.sections[index].factory(context)->config_json(), config.weights).or_throw();
  }
  state.check_surroundings();
  if (state.is_root()) state.builder.try_stored_states(state.rank);
}

RunResult ProcessRun::run() {
  State& state = *state_;
  std::future<RunOutcome> future = state.outcome->future();
  Launcher launcher([&state](ProcessRank rank, const std::string& how) { state.job_start->child_ended(rank, how); });
  std::unique_ptr<SignalWatcher> signals;
  if (state.is_root()) {
    signals = std::make_unique<SignalWatcher>([&](int count) { state.interrupted(count, launcher); });
  } else {
    state.ignore_signals();
  }
  try {
    state.meet(launcher);
  } catch (const JobError& problem) {
    const bool told_to_all = state.job_start != nullptr && problem.code() == ErrorCode::cancelled;
    if (!told_to_all || state.job_start->prints_refusals()) throw;
    RunResult refused;
    refused.status = 2;
    return refused;
  }
  state.ignore_termination();
  try {
    if (state.job_start) state.job_start->check_shared_folder(state.meeting);
    state.build();
    state.print_header();
    state.introduce();
  } catch (const JobError& problem) {
    if (!state.several()) throw;
    const std::string whose = state.is_root() ? std::string() : state.job_start->own_name() + ": ";
    tell_from_outside(state.supervisor, Failure{whose + problem.what()});
  }
  const RunOutcome ended = future.get();
  signals.reset();
  if (!ended.ok) {
    RunResult failed;
    failed.status = state.fail(ended, launcher);
    return failed;
  }
  if (!state.plan.options.trace.empty()) state.trace.write_part(state.trace_part(state.place.rank)).or_throw();
  state.stop();
  launcher.end_all(milliseconds(10000));
  RunResult result = state.succeed(ended);
  if (!launcher.all_clean()) {
    state.console.error("the run is complete, but one of its other processes ended with an error");
    result.status = 1;
  }
  return result;
}

}  // namespace maestro
