// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor.hpp"

#include <algorithm>
#include <utility>

#include "actors/launch/launcher.hpp"
#include "actors/plan/seats.hpp"
#include "runtime/core/result.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

namespace {
constexpr std::chrono::milliseconds own_settle_time(100);  // for the Failure of an actor that has ended
constexpr std::chrono::seconds ping_limit(5);
constexpr std::chrono::seconds report_limit(1);  // for rank 0 to receive a failure of this process
constexpr std::chrono::seconds stop_grace(10);
}  // namespace

std::string process_label(const ProcessInfo& peer, const SectionGraph& graph) {
  std::string label = "process " + std::to_string(peer.process.value()) + " (pid " + std::to_string(peer.identity.pid);
  if (!peer.host.empty()) label += ", host " + peer.host;
  if (peer.process == ProcessId(0)) label += ", coordinator";
  for (const ReplicaAddress& replica : peer.replicas) {
    label += ", section '" + graph.node(replica.section).name + "' replica " + std::to_string(replica.replica.value());
  }
  return label + ")";
}

Supervisor::Supervisor(caf::actor_config& config, SupervisorOptions options)
    : caf::event_based_actor(config),
      options_(std::move(options)),
      membership_(options_.process, options_.hosts, options_.joining),
      peers_(options_.peer_timeout) {
  set_down_handler([this](caf::down_msg& message) { down(message); });
  report_every_end(this, [this](const std::string& problem) { fail({"supervisor: " + problem}, true); });  // SV-6
}

void Supervisor::on_exit() {
  local_ = LocalActors();
  directory_ = Directory();
  watched_.clear();
  own_.clear();
  root_ = nullptr;
  leaver_ = nullptr;
  change_ = SeatChange();
  successor_.reset();
  taken_ = SeatsTaken();
}

caf::behavior Supervisor::make_behavior() {
  return {
      [this](const JoinRoot& message) { join(message); },
      [this](const ProcessJoined& peer) { joined(peer); },
      [this](const LocalActors& local) { start(local); },
      [this](const ProcessInfo& info) { introduced(info); },
      [this](const PeerList& neighbours) { connect_neighbours(neighbours); },
      [this](const Ping& neighbour) {
        pinged(neighbour.process, caf::actor_cast<caf::actor>(current_sender()));
        return Ping{options_.process};
      },
      [this](const PeersConnected& from) { connected(from); },
      [this](const Directory& directory) { wire(directory); },
      [this](const ProcessReady& message) { ready(message); },
      [this](StartTimeout) { start_timed_out(); },
      [this](WiringTimeout) { wiring_timed_out(); },
      [this](const ChildEnded& child) { child_ended(child); },
      [this](LossSettled) { rescue_state(); },
      [this](const Heartbeat& peer) { peers_.heard(peer.process); },
      [this](BeatDue) { beat(); },
      [this](Interrupt) { interrupt(); },
      [this](const NeighbourLost& loss) { neighbour_lost(loss); },
      [this](Shutdown) {
        membership_.end();
        end_in_order();
      },
      [this](const TransferBroken& broken) {
        delayed_send(this, options_.peer_timeout * 3 / 2,
                     TransferJudgement{broken.message, caf::actor_cast<caf::actor_addr>(current_sender())});  // SV-7
      },
      [this](const TransferJudgement& broken) {
        if (!held_.empty()) return delayed_send(this, options_.peer_timeout, TransferJudgement(broken));
        if (!retired_.contains(broken.reporter)) fail({broken.message}, prints(), false, may_follow_loss());
      },
      [this](const Failure& failure) {
        const auto from = watched_.find(caf::actor_cast<caf::actor_addr>(current_sender()));
        if (from != watched_.end() && is_successor(from->second.process) && !change_.under_way()) {
          return successor_failed({from->second.process, failure.message});
        }
        if (rescuing_) return not_rescued(failure.message);
        failure_reported(failure);
      },
      [this](const StopJudgement& judged) {
        fail(judged.failure, prints(), false, judged.failure.may_follow_loss && may_follow_loss());
      },
      [this](StartAgain) { return stay(); },
      [this](const MoveSeats& order) { move_seats(order); },
      [this](const SeatsTaken& answer) { seats_taken(answer); },
      [this](const SeatsMoved& moved) { seats_moved(moved); },
      [this](const SeatsReady& answer) { seats_ready(answer); },
      [this](const MoveTimeout& move) { move_timed_out(move); },
      [this](const ProcessGone& lost) { process_gone(lost); },
      [this](const SuccessorFailed& failure) { successor_failed(failure); },
      [this](const JoinWanted& wanted) { return let_join(wanted); },
      [this](const LeaveWanted& wanted) { return let_leave(wanted); },
      [this](Dismissed) { leave_run(); },
      [this](LookDue) { look_at_seats(); },
      [this](Finish) { finish(); },
      [this](const ProcessSummary& summary) { summarised(summary); },
  };
}

void Supervisor::join(const JoinRoot& message) {
  root_ = message.root;
  if (!membership_.is_root()) {
    ProcessInfo root;
    root.supervisor = root_;
    watch(root);
  }
  send_to(this, root_,
          ProcessJoined{options_.process, own_identity(), options_.host, caf::actor_cast<caf::actor>(this)});
  begin_to_beat();
  if (membership_.is_root()) delayed_send(this, options_.join_timeout, StartTimeout{});
}

void Supervisor::joined(const ProcessJoined& peer) {
  const bool again = is_successor(peer.process) && membership_.come(peer.process);
  const Tally tally = membership_.record(Milestone::joined, peer.process);
  if ((tally == Tally::ignored && !again) || peer.process == options_.process) return;
  ProcessInfo known;
  known.process = peer.process;
  known.identity = peer.identity;
  known.host = peer.host;
  known.supervisor = peer.supervisor;
  watch(known);
  begin_to_beat();  // those that have joined rank 0 watch it, although others may let it wait
}

void Supervisor::start_timed_out() {
  if (membership_.phase() >= RunPhase::running || membership_.complete(Milestone::joined)) return;
  fail({"only " + std::to_string(membership_.count(Milestone::joined)) + " of " +
        std::to_string(membership_.processes()) + " processes joined within " +
        std::to_string(options_.join_timeout.count() / 1000) + " s"},
       true, false, options_.started_again);
}

void Supervisor::wiring_timed_out() {
  if (membership_.phase() >= RunPhase::running) return;
  fail({"the processes have not connected to each other within " +
        std::to_string(options_.start_timeout.count() / 1000) +
        " s: " + std::to_string(membership_.count(Milestone::ready)) + " of " +
        std::to_string(membership_.processes()) + " are ready"},
       true, false, options_.started_again);
}

void Supervisor::start(const LocalActors& local) {
  local_ = local;
  for (const OwnActor& own : local_.own) {
    own_[own.actor.address()] = own.label;
    monitor(own.actor);
  }
  local_.own.clear();
  send_to(this, root_, local_.info);
}

void Supervisor::watch(const ProcessInfo& peer) {
  const bool known = watched_.contains(peer.supervisor.address());
  watched_[peer.supervisor.address()] = peer;
  if (!known) monitor(peer.supervisor);
  peers_.add(peer.process);
}

void Supervisor::introduced(const ProcessInfo& info) {
  if (info.build != options_.build) {
    return fail({"process " + std::to_string(info.process.value()) + " runs another version or job: " + info.build +
                 " instead of " + options_.build},
                true);
  }
  const Tally tally = membership_.record(Milestone::introduced, info.process);
  if (tally == Tally::ignored) return;
  if (is_successor(info.process)) return successor_introduced(info);
  directory_.processes.push_back(info);
  if (info.process != options_.process) watch(info);
  if (tally != Tally::last) return;
  delayed_send(this, options_.start_timeout, WiringTimeout{});
  PeerList neighbours;
  for (const ProcessInfo& peer : directory_.processes) {
    neighbours.all.push_back({peer.process, peer.actors_host, peer.actors_port});
  }
  for (const ProcessInfo& peer : directory_.processes) send_to(this, peer.supervisor, neighbours);
}

void Supervisor::connect_neighbours(const PeerList& neighbours) {
  if (neighbours.late) miss_absent(neighbours);
  const Tally tally = membership_.listed();
  if (tally == Tally::ignored) return;
  connect_until_ = std::chrono::steady_clock::now() + options_.start_timeout;
  for (const PeerAddress& neighbour : neighbours.all) {
    if (neighbour.process == ProcessId(0) || neighbour.process == options_.process) continue;
    if (neighbours.late || neighbour.process < options_.process) connect_to(neighbour);
  }
  if (tally == Tally::last) send_to(this, root_, PeersConnected{options_.process});
}

void Supervisor::connect_to(const PeerAddress& neighbour) {
  options_.connect(
      this, neighbour.host, neighbour.port,
      [this, neighbour](const caf::actor& supervisor) { ping(neighbour, supervisor); },
      [this, neighbour](const std::string& problem) { cannot_connect(neighbour, problem); });
}

/// CAF may treat a new connection without a message as silent and end it; a connection that has carried a message in
/// each direction is kept.
void Supervisor::ping(const PeerAddress& neighbour, const caf::actor& supervisor) {
  request(supervisor, ping_limit, Ping{options_.process})
      .then([this, neighbour, supervisor](const Ping&) { pinged(neighbour.process, supervisor); },
            [this, neighbour](const caf::error& problem) {
              if (std::chrono::steady_clock::now() < connect_until_) return connect_to(neighbour);
              cannot_connect(neighbour, system().render(problem));
            });
}

void Supervisor::cannot_connect(const PeerAddress& neighbour, const std::string& problem) {
  fail({"process " + std::to_string(options_.process.value()) + " cannot connect to process " +
        std::to_string(neighbour.process.value()) + " at " + neighbour.host + ":" + std::to_string(neighbour.port) +
        ": " + problem + "; check the network between the hosts; over long distances raise train.peer_timeout_s"},
       prints(), false, may_follow_loss());
}

void Supervisor::pinged(ProcessId process, const caf::actor& supervisor) {
  const bool again = !membership_.is_root() && membership_.come(process);
  const Tally tally = membership_.record(Milestone::pinged, process);
  if (tally == Tally::ignored && !again) return;
  ProcessInfo known;
  known.process = process;
  known.supervisor = supervisor;
  watch(known);
  if (tally == Tally::last && !again) send_to(this, root_, PeersConnected{options_.process});
}

void Supervisor::connected(const PeersConnected& from) {
  if (is_successor(from.process)) {
    successor_->connected = true;
    return seat_successor();
  }
  if (membership_.record(Milestone::connected, from.process) != Tally::last) return;
  directory_.coordinator = local_.coordinator;
  for (const ProcessInfo& peer : directory_.processes) send_to(this, peer.supervisor, directory_);
}

void Supervisor::wire(const Directory& directory) {
  if (!membership_.wired()) return;
  if (options_.connected) options_.connected(this);
  directory_ = directory;
  for (const ProcessInfo& peer : directory_.processes) {
    if (peer.process != options_.process) watch(peer);  // with its full label from now on
  }
  const caf::message shared = caf::make_message(directory_);  // a single copy for all replicas
  for (const ReplicaAddress& replica : local_.info.replicas) send_to(this, replica.actor, shared);
  if (membership_.is_root()) send_to(this, local_.coordinator, shared);
  connect_transport();
}

void Supervisor::connect_transport() {
  try {
    connect_memory();
    send_to(this, root_, ProcessReady{options_.process});
  } catch (const JobError& problem) {
    fail({std::string("transport: ") + problem.what()}, prints());
  }
}

void Supervisor::connect_memory() {
  for (const ProcessInfo& peer : directory_.processes) {
    if (transported_.insert(peer.process).second && options_.connect_transport) options_.connect_transport(peer);
  }
}

void Supervisor::ready(const ProcessReady& ready) {
  if (membership_.record(Milestone::ready, ready.process) != Tally::last) return;
  home_ = seats_of(directory_);
  send_to(this, local_.coordinator, Begin{});
  look_at_seats();
}

void Supervisor::child_ended(const ChildEnded& child) {
  if (child.again && is_successor(child.process) && membership_.has_left(child.process)) {
    return successor_failed({child.process, "it ended with " + child.how});
  }
  if (!membership_.child_ended(child.process, child.how)) return;  // CAF's down message decides (SV-2)
  fail({"process " + std::to_string(child.process.value()) + " ended before the job began: " + child.how},
       !membership_.on_this_host(child.process) || !prints_itself(child.how), false, options_.started_again);
}

void Supervisor::begin_to_beat() {
  if (!std::exchange(beats_, true)) beat();
}

/// Sends heartbeats to the watched processes, and judges theirs once this process has joined; also while it is alone,
/// as others may come.
void Supervisor::beat() {
  if (membership_.phase() == RunPhase::ended || membership_.most_processes() == 1) return;
  const auto interval = PeerWatch::interval_of(options_.peer_timeout);
  delayed_send(this, interval, BeatDue{});
  const bool some_join = root_ && !membership_.complete(Milestone::joined);  // peers_ has those that have joined
  if (some_join && options_.stopped_child) {
    const auto line = options_.stopped_child(std::chrono::duration_cast<std::chrono::milliseconds>(interval));
    if (line) return fail({*line}, true, false, options_.started_again);
  }
  for (const auto& [address, peer] : watched_) send_to(this, peer.supervisor, Heartbeat{options_.process});
  if (!root_) return;
  for (const ProcessId silent : peers_.silent(clock().now())) {
    const auto found =
        std::ranges::find_if(watched_, [&](const auto& entry) { return entry.second.process == silent; });
    if (found != watched_.end()) lost(found->second);
  }
}

void Supervisor::down(const caf::down_msg& message) {
  if (const auto own = own_.find(message.source); own != own_.end()) return own_ended(own->second, message.reason);
  if (const auto found = watched_.find(message.source); found != watched_.end()) lost(found->second);
}

void Supervisor::own_ended(const std::string& label, const caf::error& reason) {
  if (membership_.phase() == RunPhase::ended) return;
  delayed_send(this, own_settle_time, Failure{label + " ended in mid-run: " + home_system().render(reason)});
}

void Supervisor::fail(const Failure& failure, bool print, bool from_root, bool recoverable) {
  if (!membership_.fail()) return;
  RunOutcome outcome;
  outcome.recoverable = recoverable;
  if (print) outcome.error = failure.message;
  if (membership_.is_root()) {
    const bool recovers = recoverable && options_.may_recover && options_.may_recover();
    return end_start(std::move(outcome), failure.message, failure.goes_back || recovers);
  }
  if (!root_ || from_root) return options_.outcome->set(std::move(outcome));
  ends_ = true;
  // The process ends when the outcome is set, and messages not sent by then are lost.
  const auto set = [promise = options_.outcome, outcome] { promise->set(outcome); };
  request(root_, report_limit, Failure{failure.message, recoverable, failure.service_lost})
      .then(set, [set](const caf::error&) { set(); });
}

void Supervisor::failure_reported(const Failure& failure) {
  if (failure.may_follow_loss && stops()) {  // SV-15
    return delayed_send(this, stop_grace, StopJudgement{failure});
  }
  const bool recoverable = failure.service_lost || (failure.may_follow_loss && may_follow_loss());
  fail(failure, prints(), current_sender() == root_, recoverable);
}

void Supervisor::interrupt() {
  if (options_.seats.by_hand) return leave_by_signal();
  if (!membership_.is_root()) return send_to(this, root_, Interrupt{});
  if (options_.stop_run) options_.stop_run();
}

void Supervisor::finish() {
  leave_out_successor();
  if (!membership_.finish()) return;
  if (membership_.is_root()) {
    for (const ProcessInfo& peer : directory_.processes) {
      if (peer.process != options_.process) send_to(this, peer.supervisor, Finish{});
    }
    return summarised(options_.summary());
  }
  send_to(this, root_, options_.summary());
}

void Supervisor::summarised(const ProcessSummary& summary) {
  const Tally tally = membership_.record(Milestone::summarised, summary.process);
  if (tally == Tally::ignored) return;
  summaries_.push_back(summary);
  if (tally != Tally::last) return;
  for (const auto& [address, peer] : watched_) send_to(this, peer.supervisor, Shutdown{});  // OM-1
  end_in_order(summaries_);
}

void Supervisor::end_in_order(std::vector<ProcessSummary> summaries) {
  RunOutcome outcome;
  outcome.ok = true;
  outcome.processes = std::move(summaries);
  options_.outcome->set(std::move(outcome));
}

}  // namespace maestro
