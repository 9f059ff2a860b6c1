// SPDX-License-Identifier: Apache-2.0
// The actors of a process, and their options.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "actors/job/data_source.hpp"
#include "actors/job/lane_text.hpp"
#include "actors/job/planning_options.hpp"
#include "actors/job/rollout_source.hpp"
#include "actors/process/emergency_exit.hpp"
#include "actors/process/process_state.hpp"
#include "actors/run/coordinator/planner.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

}  // namespace

void ProcessRun::State::open_actors() {
  const milliseconds peer_timeout(static_cast<std::int64_t>(part.plan.train.peer_timeout_s * 1000));
  ActorSystemOptions options;
  options.networked = part.several();
  options.peer_timeout = peer_timeout;
  options.start_timeout = milliseconds(static_cast<std::int64_t>(part.plan.transport.start_timeout_s * 1000));
  options.several_hosts = part.plan.options.launch_info.several_hosts();
  if (part.job_start) options.keys = part.job_start->access().keys();
  options.application = part.rendezvous_info.secret;
  built.open_actors(options);
  built.set_supervisor(built.actors().system().spawn<Supervisor>(supervisor_options()));
  stop_policy.supervised();
  part.bound({}, milliseconds(0));
}

SupervisorOptions ProcessRun::State::supervisor_options() {
  const milliseconds peer_timeout(static_cast<std::int64_t>(part.plan.train.peer_timeout_s * 1000));
  const bool recovers = part.started_by_rank_0() && part.plan.train.recover == RecoverChoice::restart;
  SupervisorOptions supervision;
  supervision.graph = &part.plan.graph;
  supervision.process = part.process;
  supervision.hosts = part.hosts;
  supervision.joining = part.joining();
  if (part.job_start) {
    supervision.host = part.job_start->access().host();
    supervision.stopped_child = std::bind_front(&JobStart::stopped_child, part.job_start, peer_timeout);
    const bool another = recovers || (part.plan.stage.given() && !part.plan.stage.last());
    supervision.connected = [this, another](caf::event_based_actor*) {
      if (part.replacements_may_come() || part.joining() > 0) return;  // later processes connect to the same listener
      built.actors().stop_listening();
      if (another) return part.job_start->tidy_start();  // another start may follow
      part.job_start->tidy();
    };
  }
  supervision.recovers = recovers;
  supervision.survives = recovery.may_survive();
  if (part.is_root()) supervision.may_recover = [this] { return recovery.may_recover(); };
  supervision.started_again = part.starts_again();
  supervision.rescues =
      recovery.may_recover() && (part.stores_checkpoints() || !part.plan.options.launch_info.several_hosts());
  supervision.start_timeout = milliseconds(static_cast<std::int64_t>(part.plan.transport.start_timeout_s * 1000));
  supervision.join_timeout = std::min(supervision.start_timeout, std::max(5 * peer_timeout, milliseconds(15000)));
  supervision.peer_timeout = peer_timeout;
  supervision.build = build_name();
  supervision.connect = [this](caf::event_based_actor* self, const std::string& host, std::uint16_t port, auto done,
                               auto failed) {
    built.actors().connect(self, host, port, std::move(done), std::move(failed));
  };
  supervision.connect_transport = [this](const ProcessInfo& peer) {
    built.network().connect(peer.process, peer.endpoint, process_label(peer, part.plan.graph));
  };
  supervision.outcome = outcome;
  supervision.current_step = &part.current_step;
  supervision.summary = [this] { return built.summary_at_end(); };
  if (part.is_root()) supervision.stopping = [this] { return stop_policy.stopping(); };
  supervision.stop_run = [this] { stop_policy.stop_for_another(); };
  supervision.placements = placements.options();
  return supervision;
}

void ProcessRun::State::route_child_ends() {
  part.job_start->route_child_ends([to = built.supervisor()](ProcessId child, const std::string& how, bool again) {
    send_from_outside(to, ChildEnded{child, how, again});
  });
}

caf::actor ProcessRun::State::find_root() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  caf::scoped_actor self(built.actors().system());
  std::string problem;
  while (std::chrono::steady_clock::now() < deadline) {
    const caf::actor found = built.actors().find(part.rendezvous_info.root_address, part.rendezvous_info.root_port);
    bool answered = false;
    self->request(found, std::chrono::seconds(5), Ping{part.process})
        .receive([&](const Ping&) { answered = true; },
                 [&](const caf::error& error) { problem = built.actors().system().render(error); });
    if (answered) return found;
  }
  throw JobError("cannot reach the supervisor of rank 0 at " + part.rendezvous_info.root_address + ":" +
                     std::to_string(part.rendezvous_info.root_port) + ": " + problem +
                     "; over long distances raise train.peer_timeout_s",
                 ErrorCode::peer_lost);
}

std::string ProcessRun::State::build_name() const {
  return std::string("maestro ") + MAESTRO_VERSION + " job " + part.plan.name;
}

void ProcessRun::State::spawn_coordinator(LocalActors& local) {
  caf::actor_system& system = built.actors().system();
  const Sampler sampler(static_cast<std::uint64_t>(part.plan.train.seed), part.plan.corpus->sources());
  // A detached actor: it reads samples, and must not delay heartbeats.
  const DataSourceOptions data{part.plan.train.global_batch, part.plan.train.validation_samples, part.start.cursor};
  const std::optional<RolloutPlan>& rollouts = part.plan.rollouts;
  const caf::actor source =
      rollouts ? system.spawn<RolloutSource, caf::detached>(built.supervisor(), part.plan.corpus, sampler,
                                                            part.plan.samples, rollout_options(data))
               : system.spawn<DataSource, caf::detached>(built.supervisor(), part.plan.corpus, sampler, data);
  outputs.describe_trace();
  StepPlannerOptions planning = planner_options(part.plan);
  planning.trained_until = part.trained_until();
  const caf::actor planner =
      system.spawn<Planner, caf::detached>(std::move(planning), &built.trace(), built.supervisor());
  outputs.open_journal(built.snapshots());
  CoordinatorOptions options = coordinator_options(source);
  options.planner = planner;
  built.keep(source);
  built.keep(planner);
  local.coordinator = system.spawn<Coordinator>(std::move(options));
  built.set_coordinator(local.coordinator);
  local.own.insert(local.own.end(),
                   {{source, "data source"}, {planner, "planner"}, {local.coordinator, "coordinator"}});
}

RolloutOptions ProcessRun::State::rollout_options(const DataSourceOptions& data) const {
  const GeneratorConfig& config = part.plan.rollouts->config;
  RolloutOptions options;
  options.data = data;
  options.generator = config;
  options.section = part.plan.rollouts->section;
  options.seed = static_cast<std::uint64_t>(part.plan.train.seed);
  options.first_step = part.start.first_step;
  if (config.record) options.record.keep = part.record_path() / rollouts_folder;
  options.record.read = config.rollouts;
  options.record.show = config.show;
  options.record.tokenizer = part.plan.tokenizer;
  return options;
}

CoordinatorOptions ProcessRun::State::coordinator_options(const caf::actor& source) {
  const TrainConfig& train = part.plan.train;
  CoordinatorOptions options;
  options.graph = &part.plan.graph;
  options.schedule.first_step = part.start.first_step;
  options.schedule.steps = static_cast<std::uint64_t>(train.steps);
  if (part.plan.options.until > 0) options.schedule.steps = std::min(options.schedule.steps, part.plan.options.until);
  options.schedule.validate_every = static_cast<std::uint64_t>(train.validate_every);
  options.schedule.checkpoint_every = static_cast<std::uint64_t>(train.checkpoint_every);
  options.schedule.validate_at_end = part.plan.corpus->samples(Split::validation) > 0 && part.plan.options.until == 0;
  if (part.memory.shadows) options.schedule.shadow_every = static_cast<std::uint64_t>(train.shadow_every);
  if (part.memory.shadows) options.shadows = &part.memory.shadows->store();
  options.schedule.checkpoint_at_end = train.checkpoint_at_end;
  if (part.starts_again()) options.schedule.owed = part.record->owed;
  options.schedule.pause_after = part.record->pause_after;
  options.schedule.keeps_state = !has_emulated(part.plan);
  options.ahead = train.ahead;
  options.global_batch = train.global_batch;
  options.seed = static_cast<std::uint64_t>(train.seed);
  options.origin = part.claim.origin;
  options.epoch_samples = epoch_positions(part.plan);
  if (part.plan.rollouts) options.generator = part.plan.rollouts->name;
  options.synchronous = scheduling_policy(part.plan)->synchronous();
  options.measure = !train.deterministic;
  options.predicted = part.plan.planned;
  options.next_stage = part.plan.stage.given() && !part.plan.stage.last() &&
                       options.schedule.steps == static_cast<std::uint64_t>(train.steps);
  options.finishing = [this] { outputs.rehearse(); };
  options.moves_placements = part.placements_may_move();
  options.global_clip = train.clip == ClipScope::global;
  options.joined_norms = joins_norms(part.plan);
  options.trained_until = part.trained_until();
  options.max_left_out = part.plan.max_bad_samples - static_cast<std::int64_t>(part.plan.corpus->left_out());
  options.record = part.record;
  options.journal = outputs.journal();
  options.guard = recovery.make_guard();
  options.figures = part.memory.figures;
  options.rollbacks = recovery.rollbacks();
  options.cursor = part.start.cursor;
  options.archive_every = options.schedule.archive_every = static_cast<std::uint64_t>(train.archive_every);
  options.archive_form = train.archive == ArchiveChoice::bf16 ? ArchiveForm::bf16 : ArchiveForm::full;
  options.archive.emplace(fs::path(train.out) / archive_folder);
  options.snapshots = &built.snapshots();
  options.console = &part.console;
  options.data_source = source;
  options.supervisor = built.supervisor();
  options.current_step = &part.current_step;
  options.events = &services.events();
  return options;
}

void ProcessRun::State::spawn_replicas(LocalActors& local) {
  caf::scoped_actor self(built.actors().system());
  for (const ReplicaPlacement& at : part.plan.places) {
    if (at.process != part.process || part.joins_later()) continue;
    local.own.push_back(placements.begin(at));
    self->request(local.own.back().actor, std::chrono::seconds(30), AddressRequest{})
        .receive(
            [&](const ReplicaAddress& address) { local.info.replicas.push_back(address); },
            [&](const caf::error& problem) { throw JobError("start-up: " + built.actors().system().render(problem)); });
  }
}

void ProcessRun::State::introduce() {
  LocalActors local;
  built.network().route_failures(built.supervisor());
  if (part.is_root()) spawn_coordinator(local);
  spawn_replicas(local);
  local.info.process = part.process;
  local.info.identity = own_identity();
  local.info.build = build_name();
  local.info.endpoint = built.network().address();
  local.info.supervisor = built.supervisor();
  for (const BuiltReplica& replica : built.replicas()) {
    if (part.joins_later()) std::ranges::copy(texts_of(replica.place.devices), std::back_inserter(local.info.devices));
  }
  if (part.job_start) {
    local.info.host = part.job_start->access().host();
    local.info.actors_host = part.is_root() ? part.rendezvous_info.root_address : part.job_start->access().gate_host();
    local.info.actors_port = part.is_root() ? part.rendezvous_info.root_port
                                            : built.actors().publish(built.supervisor(), local.info.actors_host, 0);
  }
  services.open([this] { stop_policy.stop_in_order({}); }, outputs.journal() != nullptr);
  stop_policy.begun();
  send_from_outside(built.supervisor(), local);
  if (!part.is_root()) return;
  services.watch_progress([this](const std::string& line) {
    send_from_outside(built.supervisor(), Failure{line});
    part.bound(line + "; the end of the failed run", departure_limit);  // the supervisor may also hang
  });
}

}  // namespace maestro
