// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor/supervisor.hpp"

#include <algorithm>
#include <utility>

#include "actors/launch/launcher.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {
constexpr std::chrono::milliseconds own_settle_time(100);  // time for an ended actor's Failure to arrive
constexpr std::chrono::milliseconds settle_time(250);
constexpr std::chrono::milliseconds look_interval(100);
constexpr std::chrono::seconds leave_limit(5);  // time for rank 0's answer
constexpr std::chrono::seconds stop_grace(10);
constexpr std::chrono::seconds rescue_limit(20);
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
      run_(this, std::move(options)),
      mesh_(
          run_, [this](ProcessId process, const caf::actor& supervisor) { pinged(process, supervisor); },
          [this](const std::string& problem) { end_.fail({problem}, run_.prints(), false, may_follow_loss()); }),
      own_(run_),
      mover_(run_),
      elastic_(*run_.options.graph, run_.options.placements.elastic),
      end_(run_, mesh_, mover_) {
  run_.fail = [this](const std::string& problem, bool print, bool recoverable) {
    end_.fail({problem}, print, false, recoverable);
  };
  set_down_handler([this](caf::down_msg& message) { down(message); });
  report_every_end(this, [this](const std::string& problem) { end_.fail({"supervisor: " + problem}, true); });  // SV-6
}

void Supervisor::on_exit() {
  run_.local = LocalActors();
  run_.directory = Directory();
  run_.root = nullptr;
  mesh_.clear();
  own_.clear();
  mover_.clear();
}

caf::behavior Supervisor::make_behavior() {
  return {
      [this](const JoinRoot& message) { join(message); },
      [this](const ProcessJoined& peer) { joined(peer); },
      [this](const LocalActors& local) { start(local); },
      [this](const ProcessInfo& info) { introduced(info); },
      [this](const PeerList& peers) { connect_peers(peers); },
      [this](const Ping& peer) {
        pinged(peer.process, caf::actor_cast<caf::actor>(current_sender()));
        return Ping{run_.options.process};
      },
      [this](const PeersConnected& from) { connected(from); },
      [this](const Directory& directory) { wire(directory); },
      [this](const ProcessReady& message) { ready(message); },
      [this](StartTimeout) { start_timed_out(); },
      [this](WiringTimeout) { wiring_timed_out(); },
      [this](const ChildEnded& child) { child_ended(child); },
      [this](LossSettled) { rescue_state(); },
      [this](const Heartbeat& peer) { mesh_.heard(peer.process); },
      [this](BeatDue) { beat(); },
      [this](Interrupt) { interrupt(); },
      [this](const PeerLost& loss) { peer_lost(loss); },
      [this](Shutdown) {
        run_.membership.end();
        end_.end_in_order();
      },
      [this](const TransferBroken& broken) {
        delayed_send(this, run_.options.peer_timeout * 3 / 2,
                     TransferJudgement{broken.message, caf::actor_cast<caf::actor_addr>(current_sender())});  // SV-7
      },
      [this](const TransferJudgement& broken) { judge(broken); },
      [this](const Failure& failure) { failure_reported(failure); },
      [this](const StopJudgement& judged) {
        end_.fail(judged.failure, run_.prints(), false, judged.failure.may_follow_loss && may_follow_loss());
      },
      [this](StartAgain) { return end_.survive(); },
      [this](const MovePlacements& order) { move_placements(order); },
      [this](const PlacementsTaken& answer) { mover_.taken(answer); },
      [this](const PlacementsMoved& moved) { seats_moved(moved); },
      [this](const PlacementsReady& answer) { mover_.ready(answer); },
      [this](const MoveTimeout& move) { mover_.timed_out(move); },
      [this](const ProcessGone& gone) { process_gone(gone); },
      [this](const ReplacementFailed& failure) { mover_.failed(failure); },
      [this](const JoinWanted& wanted) { return let_join(wanted); },
      [this](const LeaveWanted& wanted) { return mover_.let_leave(wanted); },
      [this](Dismissed) { end_.leave(); },
      [this](LookDue) { look_at_placements(); },
      [this](Finish finish) { end_.finish(finish.next_stage); },
      [this](const ProcessSummary& summary) { end_.summarised(summary); },
  };
}

void Supervisor::join(const JoinRoot& message) {
  run_.root = message.root;
  if (!run_.membership.is_root()) {
    ProcessInfo root;
    root.supervisor = run_.root;
    mesh_.watch(root);
  }
  send_to(this, run_.root,
          ProcessJoined{run_.options.process, own_identity(), run_.options.host, caf::actor_cast<caf::actor>(this)});
  begin_to_beat();
  if (run_.membership.is_root()) delayed_send(this, run_.options.join_timeout, StartTimeout{});
}

void Supervisor::joined(const ProcessJoined& peer) {
  const bool again = mover_.is_replacement(peer.process) && run_.membership.come(peer.process);
  const Tally tally = run_.membership.record(Milestone::joined, peer.process);
  if ((tally == Tally::ignored && !again) || peer.process == run_.options.process) return;
  ProcessInfo known;
  known.process = peer.process;
  known.identity = peer.identity;
  known.host = peer.host;
  known.supervisor = peer.supervisor;
  mesh_.watch(known);
  begin_to_beat();  // processes that have joined watch rank 0 while it waits for others
}

void Supervisor::start_timed_out() {
  const RunMembership& members = run_.membership;
  if (members.phase() >= RunPhase::running || members.complete(Milestone::joined)) return;
  run_.fail("only " + std::to_string(members.count(Milestone::joined)) + " of " + std::to_string(members.processes()) +
                " processes joined within " + std::to_string(run_.options.join_timeout.count() / 1000) + " s",
            true, run_.options.started_again);
}

void Supervisor::wiring_timed_out() {
  const RunMembership& members = run_.membership;
  if (members.phase() >= RunPhase::running) return;
  run_.fail("the processes have not connected to each other within " +
                std::to_string(run_.options.start_timeout.count() / 1000) +
                " s: " + std::to_string(members.count(Milestone::ready)) + " of " +
                std::to_string(members.processes()) + " are ready",
            true, run_.options.started_again);
}

void Supervisor::start(const LocalActors& local) {
  run_.local = local;
  own_.watch(run_.local.own);
  run_.local.own.clear();
  send_to(this, run_.root, run_.local.info);
}

void Supervisor::introduced(const ProcessInfo& info) {
  if (info.build != run_.options.build) {
    return run_.fail("process " + std::to_string(info.process.value()) + " runs another version or job: " + info.build +
                         " instead of " + run_.options.build,
                     true, false);
  }
  const Tally tally = run_.membership.record(Milestone::introduced, info.process);
  if (tally == Tally::ignored) return;
  if (info.process != run_.options.process) mesh_.watch(info);
  if (mover_.is_replacement(info.process)) return mover_.introduced(info);
  run_.directory.processes.push_back(info);
  if (tally != Tally::last) return;
  delayed_send(this, run_.options.start_timeout, WiringTimeout{});
  PeerList peers;
  for (const ProcessInfo& peer : run_.directory.processes) {
    peers.all.push_back({peer.process, peer.actors_host, peer.actors_port});
  }
  for (const ProcessInfo& peer : run_.directory.processes) send_to(this, peer.supervisor, peers);
}

void Supervisor::connect_peers(const PeerList& peers) {
  if (peers.late) miss_absent(peers);
  const Tally tally = run_.membership.listed();
  if (tally == Tally::ignored) return;
  mesh_.connect(peers);
  if (tally == Tally::last) send_to(this, run_.root, PeersConnected{run_.options.process});
}

void Supervisor::miss_absent(const PeerList& present) {
  for (ProcessId process(0); process.value() < run_.membership.most_processes();
       process = ProcessId(process.value() + 1)) {
    if (std::ranges::find(present.all, process, &PeerAddress::process) != present.all.end()) {
      (void)run_.membership.come(process);
    } else if (process != run_.options.process) {
      run_.membership.miss(process);
    }
  }
}

void Supervisor::pinged(ProcessId process, const caf::actor& supervisor) {
  const bool again = !run_.membership.is_root() && run_.membership.come(process);
  const Tally tally = run_.membership.record(Milestone::pinged, process);
  if (tally == Tally::ignored && !again) return;
  ProcessInfo known;
  known.process = process;
  known.supervisor = supervisor;
  mesh_.watch(known);
  if (tally == Tally::last && !again) send_to(this, run_.root, PeersConnected{run_.options.process});
}

void Supervisor::connected(const PeersConnected& from) {
  if (mover_.is_replacement(from.process)) return mover_.connected();
  if (run_.membership.record(Milestone::connected, from.process) != Tally::last) return;
  run_.directory.coordinator = run_.local.coordinator;
  for (const ProcessInfo& peer : run_.directory.processes) send_to(this, peer.supervisor, run_.directory);
}

void Supervisor::wire(const Directory& directory) {
  if (!run_.membership.wired()) return;
  if (run_.options.connected) run_.options.connected(this);
  run_.directory = directory;
  for (const ProcessInfo& peer : run_.directory.processes) {
    if (peer.process != run_.options.process) mesh_.watch(peer);  // has its full label from now on
  }
  const caf::message shared = caf::make_message(run_.directory);  // a single copy for all replicas
  for (const ReplicaAddress& replica : run_.local.info.replicas) send_to(this, replica.actor, shared);
  if (run_.membership.is_root()) send_to(this, run_.local.coordinator, shared);
  try {
    mesh_.connect_memory();
    send_to(this, run_.root, ProcessReady{run_.options.process});
  } catch (const JobError& problem) {
    run_.fail(std::string("transport: ") + problem.what(), run_.prints(), false);
  }
}

void Supervisor::ready(const ProcessReady& ready) {
  if (run_.membership.record(Milestone::ready, ready.process) != Tally::last) return;
  mover_.begin();
  send_to(this, run_.local.coordinator, Begin{});
  look_at_placements();
}

void Supervisor::child_ended(const ChildEnded& child) {
  RunMembership& members = run_.membership;
  if (child.again && mover_.is_replacement(child.process) && members.has_left(child.process)) {
    return mover_.failed({child.process, "it ended with " + child.how});
  }
  if (!members.child_ended(child.process, child.how)) return;  // CAF's down message decides (SV-2)
  run_.fail("process " + std::to_string(child.process.value()) + " ended before the job began: " + child.how,
            !members.on_this_host(child.process) || !prints_itself(child.how), run_.options.started_again);
}

void Supervisor::begin_to_beat() {
  if (!std::exchange(beats_, true)) beat();
}

/// Sends heartbeats to the watched processes, and judges their heartbeats after this process has joined; also without
/// other processes, as some may join.
void Supervisor::beat() {
  const RunMembership& members = run_.membership;
  if (members.phase() == RunPhase::ended || members.most_processes() == 1) return;
  const auto interval = PeerWatch::interval_of(run_.options.peer_timeout);
  delayed_send(this, interval, BeatDue{});
  const bool some_join = run_.root && !members.complete(Milestone::joined);  // the mesh has only joined processes
  if (some_join && run_.options.stopped_child) {
    const auto line = run_.options.stopped_child(std::chrono::duration_cast<std::chrono::milliseconds>(interval));
    if (line) return run_.fail(*line, true, run_.options.started_again);
  }
  mesh_.send_heartbeats();
  if (!run_.root) return;
  for (const ProcessInfo& silent : mesh_.silent()) lost(silent);
}

void Supervisor::down(const caf::down_msg& message) {
  if (const std::string* const own = own_.find(message.source); own != nullptr) {
    if (run_.membership.phase() == RunPhase::ended) return;
    const std::string reason = home_system().render(message.reason);
    return delayed_send(this, own_settle_time, Failure{*own + " ended during the run: " + reason});
  }
  if (const ProcessInfo* const peer = mesh_.find(message.source); peer != nullptr) lost(*peer);
}

void Supervisor::lost(const ProcessInfo& peer) {
  if (end_.survives(peer.process)) return;
  if (mover_.is_replacement(peer.process) && !mover_.under_way()) return mover_.failed({peer.process, "it was lost"});
  if (mover_.move_placements_of(peer)) return;
  switch (run_.membership.lost(peer.process)) {
    case LossVerdict::ignored:
      if (rescuing_ && peer.process != run_.membership.loss()) report_loss();  // SV-12
      return;
    case LossVerdict::peer:
      // Rank 0 also detects most of these losses, and reports more about them: wait for its report.
      return delayed_send(this, 2 * run_.options.peer_timeout,
                          PeerLost{peer.supervisor.address(), process_label(peer, *run_.options.graph)});
    case LossVerdict::run_over:
      return end_.end_in_order();
    case LossVerdict::noted:
      return note_loss(peer);
  }
}

void Supervisor::note_loss(const ProcessInfo& peer) {
  loss_.emplace(run_, peer);
  if (!run_.prints()) return report_loss();
  delayed_send(this, settle_time, LossSettled{});
  query_survivors();
}

void Supervisor::query_survivors() {
  for (const ReplicaAddress& replica : run_.directory.replicas()) {
    const bool queried = run_.membership.is_root() || replica.process == run_.options.process;
    if (!queried || replica.process == run_.membership.loss()) continue;
    request(replica.actor, settle_time, StatusRequest{})
        .then([this](const WaitingFor& answer) { loss_->add(answer); }, [](const caf::error&) {});  // SV-4
  }
}

void Supervisor::rescue_state() {
  const std::optional<ProcessId> lost = run_.membership.loss();
  if (!run_.options.rescues || lost == ProcessId(0) || !run_.local.coordinator) return report_loss();
  for (const ProcessInfo& process : run_.directory.processes) {
    const bool survives = process.process != run_.options.process && process.process != lost;
    if (survives) send_to(this, process.supervisor, ProcessGone{*lost, true});
  }
  rescuing_ = true;
  request(run_.local.coordinator, rescue_limit, Rescue{*lost})
      .then([this](Rescued) { report_loss(); }, [this](const caf::error&) { report_loss(); });
}

void Supervisor::report_loss() {
  if (run_.membership.settle()) end_.end_with(loss_->outcome(), loss_->text());
}

void Supervisor::peer_lost(const PeerLost& loss) {
  if (mesh_.find(loss.supervisor) == nullptr) return;  // its placements have moved
  run_.fail(run_.own_name() + " lost its connection to " + loss.peer + " in step " + run_.step() +
                ", which process 0 still reaches; check the network between their hosts",
            run_.prints(), false);
}

void Supervisor::failure_reported(const Failure& failure) {
  const ProcessInfo* const from = mesh_.find(caf::actor_cast<caf::actor_addr>(current_sender()));
  if (from != nullptr && mover_.is_replacement(from->process) && !mover_.under_way()) {
    return mover_.failed({from->process, failure.message});
  }
  if (rescuing_) {
    loss_->add("the state of the other replicas could not be saved: " + failure.message);
    return report_loss();
  }
  if (failure.may_follow_loss && run_.stops()) {  // SV-15
    return delayed_send(this, stop_grace, StopJudgement{failure});
  }
  const bool recoverable = failure.service_lost || (failure.may_follow_loss && may_follow_loss());
  end_.fail(failure, run_.prints(), current_sender() == run_.root, recoverable);
}

void Supervisor::judge(const TransferJudgement& broken) {
  if (!run_.awaited.empty()) return delayed_send(this, run_.options.peer_timeout, TransferJudgement(broken));
  if (!own_.retired(broken.reporter)) run_.fail(broken.message, run_.prints(), may_follow_loss());
}

bool Supervisor::may_follow_loss() const {
  const bool begins_again = run_.options.started_again && run_.membership.phase() < RunPhase::running;
  return mover_.moved_after_loss() || begins_again || !run_.membership.is_root();
}

void Supervisor::interrupt() {
  if (run_.options.placements.by_hand) return leave_by_signal();
  if (!run_.membership.is_root()) return send_to(this, run_.root, Interrupt{});
  if (run_.options.stop_run) run_.options.stop_run();
}

void Supervisor::move_placements(const MovePlacements& order) {
  for (const ProcessId gone : order.lost) {
    (void)run_.membership.leave(gone);  // done already on rank 0
    mesh_.forget(gone, true);
  }
  for (const ProcessId leaver : order.left) {
    if (leaver == run_.options.process) continue;
    (void)run_.membership.leave(leaver);
    mesh_.forget(leaver, false);
  }
  own_.move(order);
}

void Supervisor::seats_moved(const PlacementsMoved& moved) {
  (void)run_.membership.wired();  // a replacement process is wired by its first move
  run_.directory = moved.directory;
  for (const ProcessInfo& peer : run_.directory.processes) {
    run_.awaited.erase(peer.process);
    if (peer.process == run_.options.process) {
      run_.local.info.replicas = peer.replicas;
    } else {
      mesh_.watch(peer);  // has a new label
    }
  }
  try {
    mesh_.connect_memory();
  } catch (const JobError& problem) {
    return own_.cannot_move(problem.what());
  }
  own_.go_on(moved);
  send_to(this, run_.root, PlacementsReady{moved.epoch, run_.options.process});
}

void Supervisor::process_gone(const ProcessGone& gone) {
  (void)run_.membership.leave(gone.process);                    // done already on rank 0
  mesh_.forget(gone.process, !run_.joins_later(gone.process));  // a process that could not join ends by itself
  if (gone.awaited) run_.awaited.insert(gone.process);
}

PlacementAnswer Supervisor::let_join(const JoinWanted& wanted) {
  const PlacementAnswer answer = mover_.let_join(wanted);
  if (answer.refusal.empty()) elastic_.forget(answer.process);  // an earlier process had the same number
  return answer;
}

/// Requests to leave the run after a signal to this process, which has joined it.
void Supervisor::leave_by_signal() {
  request(run_.root, leave_limit, LeaveWanted{run_.options.process})
      .then(
          [this](const PlacementAnswer& answer) {
            if (!answer.refusal.empty()) {
              run_.options.placements.host->warn("cannot leave the run now: " + answer.refusal);
            }
          },
          [](const caf::error&) {});  // the loss of rank 0 is reported elsewhere
}

void Supervisor::look_at_placements() {
  if (run_.membership.phase() > RunPhase::running || elastic_.empty()) return;
  delayed_send(this, look_interval, LookDue{});
  const bool quiet = mover_.why_nothing_moves().empty();
  for (const auto& [section, decision] : elastic_.look(run_.directory, quiet)) {
    if (decision == PlacementDecision::one_more) one_more(section);
    if (decision == PlacementDecision::one_less) one_less(section);
  }
  if (!quiet) return;
  for (const ReplicaAddress& replica : run_.directory.replicas()) {
    request(replica.actor, look_interval, StatusRequest{})
        .then([this](const WaitingFor& answer) { elastic_.add(answer); }, [](const caf::error&) {});
  }
}

void Supervisor::one_more(const std::string& section) {
  const PlacementAnswer joining = let_join({section});
  if (!joining.refusal.empty()) return;  // the run has its maximum number of processes
  elastic_.started(joining.process);
  run_.options.placements.host->note(elastic_.text_of_start(section, joining.process));
  run_.options.placements.host->start_new(joining.process, section);
}

void Supervisor::one_less(const std::string& section) {
  for (const ProcessId process : elastic_.extra(run_.directory, section)) {
    if (!mover_.let_leave({process}).refusal.empty()) continue;
    elastic_.forget(process);
    return run_.options.placements.host->note(elastic_.text_of_end(section, process));
  }
}

}  // namespace maestro
