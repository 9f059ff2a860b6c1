// SPDX-License-Identifier: Apache-2.0
#include "actors/run/supervisor.hpp"

#include <algorithm>
#include <utility>

#include "actors/launch/launcher.hpp"
#include "actors/messages/wait_text.hpp"
#include "runtime/core/result.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

namespace {
constexpr std::chrono::milliseconds settle_time(250);
constexpr std::chrono::milliseconds own_settle_time(100);  // for the Failure of an actor that has ended
constexpr std::chrono::seconds greeting_limit(5);
constexpr std::chrono::seconds telling_limit(1);
}  // namespace

std::string process_label(const ProcessInfo& process, const SectionGraph& graph) {
  std::string label =
      "process " + std::to_string(process.rank.value()) + " (pid " + std::to_string(process.process.pid);
  if (!process.host.empty()) label += ", host " + process.host;
  if (process.rank == ProcessId(0)) label += ", coordinator";
  for (const ReplicaAddress& replica : process.replicas) {
    label += ", section '" + graph.node(replica.section).name + "' replica " + std::to_string(replica.replica.value());
  }
  return label + ")";
}

Supervisor::Supervisor(caf::actor_config& config, SupervisorOptions options)
    : caf::event_based_actor(config), options_(std::move(options)), peers_(options_.peer_timeout) {
  set_down_handler([this](caf::down_msg& message) { down(message); });
  report_every_end(this, [this](const std::string& problem) { fail("supervisor: " + problem, true); });  // SV-6
}

void Supervisor::on_exit() {
  local_ = LocalActors();
  directory_ = Directory();
  watched_.clear();
  own_.clear();
  root_ = nullptr;
}

bool Supervisor::on_this_host(ProcessId rank) const {
  return options_.hosts.at(rank.value()) == options_.hosts.at(options_.rank.value());
}

bool Supervisor::prints(const std::set<ProcessId>& lost) const {
  for (std::uint32_t rank = 0; rank < options_.rank.value(); ++rank) {
    if (on_this_host(ProcessId(rank)) && !lost.contains(ProcessId(rank))) return false;
  }
  return true;
}

caf::behavior Supervisor::make_behavior() {
  return {
      [this](const JoinRoot& message) { join(message); },
      [this](const ProcessJoined& process) { joined(process); },
      [this](const LocalActors& local) {
        local_ = local;
        for (const OwnActor& own : local_.own) {
          own_[own.actor.address()] = own.label;
          monitor(own.actor);
        }
        local_.own.clear();
        tell(this, root_, local_.hello);
      },
      [this](const ProcessInfo& hello) { introduced(hello); },
      [this](const PeerList& neighbours) { meet(neighbours); },
      [this](const Ping& greeting) {
        met(greeting.rank, caf::actor_cast<caf::actor>(current_sender()));
        return Ping{options_.rank};
      },
      [this](const PeersConnected&) { neighbours_met(); },
      [this](const Directory& directory) { wire(directory); },
      [this](const ProcessReady& message) { ready(message); },
      [this](StartTimeout) { start_timed_out(); },
      [this](WiringTimeout) { wiring_timed_out(); },
      [this](const ChildEnded& child) { child_ended(child); },
      [this](LossSettled) { report_loss(); },
      [this](const Heartbeat& peer) { peers_.heard(peer.rank); },
      [this](BeatDue) { beat(); },
      [this](Interrupt) {
        if (!is_root()) return tell(this, root_, Interrupt{});
        if (options_.stop_run) options_.stop_run();
      },
      [this](const NeighbourLost& loss) {
        fail("process " + std::to_string(options_.rank.value()) + " lost its connection to " + loss.peer + " in step " +
                 std::to_string(options_.current_step->load(std::memory_order_relaxed)) +
                 ", which process 0 still reaches; check the network between their hosts",
             prints({}));
      },
      [this](Shutdown) {
        ended_ = true;
        RunOutcome outcome;
        outcome.ok = true;
        options_.outcome->set(std::move(outcome));
      },
      [this](const TransferBroken& broken) {
        delayed_send(this, options_.peer_timeout * 3 / 2, Failure{broken.message});  // SV-7
      },
      [this](const Failure& failure) { fail(failure.message, prints({}), current_sender() == root_); },
      [this](Finish) { finish(); },
      [this](const ProcessSummary& summary) { summarised(summary); },
  };
}

void Supervisor::join(const JoinRoot& message) {
  root_ = message.root;
  if (!is_root()) {
    ProcessInfo root;
    root.supervisor = root_;
    watch(root);
  }
  tell(this, root_, ProcessJoined{options_.rank, own_identity(), options_.host, caf::actor_cast<caf::actor>(this)});
  beat();
  if (is_root()) delayed_send(this, options_.join_timeout, StartTimeout{});
}

void Supervisor::joined(const ProcessJoined& process) {
  ++joined_;
  if (process.rank == options_.rank) return;
  ProcessInfo known;
  known.rank = process.rank;
  known.process = process.process;
  known.host = process.host;
  known.supervisor = process.supervisor;
  watch(known);
}

void Supervisor::start_timed_out() {
  if (static_cast<std::int64_t>(joined_) >= options_.processes) return;  // deaths are detected from here on
  fail("only " + std::to_string(joined_) + " of " + std::to_string(options_.processes) + " processes joined within " +
           std::to_string(options_.join_timeout.count() / 1000) + " s",
       true);
}

void Supervisor::wiring_timed_out() {
  if (wired_) return;
  fail("the processes have not connected to each other within " +
           std::to_string(options_.start_timeout.count() / 1000) + " s: " + std::to_string(ready_) + " of " +
           std::to_string(options_.processes) + " are ready",
       true);
}

void Supervisor::watch(const ProcessInfo& process) {
  const bool known = watched_.contains(process.supervisor.address());
  watched_[process.supervisor.address()] = process;
  if (!known) monitor(process.supervisor);
  peers_.add(process.rank);
}

void Supervisor::introduced(const ProcessInfo& hello) {
  if (hello.build != options_.build) {
    return fail("process " + std::to_string(hello.rank.value()) + " runs another version or job: " + hello.build +
                    " instead of " + options_.build,
                true);
  }
  directory_.processes.push_back(hello);
  if (hello.rank != options_.rank) watch(hello);
  if (static_cast<std::int64_t>(directory_.processes.size()) < options_.processes) return;
  delayed_send(this, options_.start_timeout, WiringTimeout{});
  PeerList neighbours;
  for (const ProcessInfo& process : directory_.processes) {
    neighbours.all.push_back({process.rank, process.actors_host, process.actors_port});
  }
  for (const ProcessInfo& process : directory_.processes) tell(this, process.supervisor, neighbours);
}

void Supervisor::meet(const PeerList& neighbours) {
  introduced_ = true;
  meet_until_ = std::chrono::steady_clock::now() + options_.start_timeout;
  for (const PeerAddress& neighbour : neighbours.all) {
    if (neighbour.rank.value() > 0 && neighbour.rank < options_.rank) connect_to(neighbour);
  }
  check_met();
}

void Supervisor::connect_to(const PeerAddress& neighbour) {
  options_.connect(
      this, neighbour.host, neighbour.port,
      [this, neighbour](const caf::actor& supervisor) { greet(neighbour, supervisor); },
      [this, neighbour](const std::string& problem) { cannot_connect(neighbour, problem); });
}

/// CAF may treat a new connection without a message as silent and end it; a connection that has carried a message in
/// each direction is kept.
void Supervisor::greet(const PeerAddress& neighbour, const caf::actor& supervisor) {
  request(supervisor, greeting_limit, Ping{options_.rank})
      .then([this, neighbour, supervisor](const Ping&) { met(neighbour.rank, supervisor); },
            [this, neighbour](const caf::error& problem) {
              if (std::chrono::steady_clock::now() < meet_until_) return connect_to(neighbour);
              cannot_connect(neighbour, system().render(problem));
            });
}

void Supervisor::cannot_connect(const PeerAddress& neighbour, const std::string& problem) {
  fail("process " + std::to_string(options_.rank.value()) + " cannot connect to process " +
           std::to_string(neighbour.rank.value()) + " at " + neighbour.host + ":" + std::to_string(neighbour.port) +
           ": " + problem + "; check the network between the hosts; over long distances raise train.peer_timeout_s",
       prints({}));
}

void Supervisor::met(ProcessId rank, const caf::actor& supervisor) {
  if (is_root() || rank == ProcessId(0)) return;  // they are connected by joining
  ProcessInfo known;
  known.rank = rank;
  known.supervisor = supervisor;
  watch(known);
  met_.insert(rank);
  check_met();
}

void Supervisor::check_met() {
  const std::size_t others = is_root() ? 0 : static_cast<std::size_t>(options_.processes) - 2;
  if (!introduced_ || met_.size() < others || std::exchange(all_told_, true)) return;
  tell(this, root_, PeersConnected{options_.rank});
}

void Supervisor::neighbours_met() {
  if (++all_met_ < static_cast<std::size_t>(options_.processes)) return;
  directory_.coordinator = local_.coordinator;
  for (const ProcessInfo& process : directory_.processes) tell(this, process.supervisor, directory_);
}

void Supervisor::wire(const Directory& directory) {
  if (options_.connected) options_.connected(this);
  directory_ = directory;
  for (const ProcessInfo& process : directory_.processes) {
    if (process.rank != options_.rank) watch(process);  // with its full label from now on
  }
  const caf::message shared = caf::make_message(directory_);  // a single copy for all replicas
  for (const ReplicaAddress& replica : local_.hello.replicas) tell(this, replica.actor, shared);
  if (is_root()) tell(this, local_.coordinator, shared);
  connect_transport();
}

void Supervisor::connect_transport() {
  try {
    for (const ProcessInfo& process : directory_.processes) {
      if (options_.connect_transport) options_.connect_transport(process);
    }
    tell(this, root_, ProcessReady{options_.rank});
  } catch (const JobError& problem) {
    fail(std::string("transport: ") + problem.what(), prints({}));
  }
}

void Supervisor::ready(const ProcessReady&) {
  if (++ready_ < static_cast<std::size_t>(options_.processes)) return;
  wired_ = true;
  tell(this, local_.coordinator, Begin{});
}

void Supervisor::child_ended(const ChildEnded& child) {
  how_ended_[child.rank] = child.how;
  if (wired_ || finishing_ || ended_ || loss_) return;  // then CAF's down message decides (SV-2)
  fail("process " + std::to_string(child.rank.value()) + " ended before the job began: " + child.how,
       !on_this_host(child.rank) || !prints_itself(child.how));
}

/// Sends heartbeats to the watched processes, and judges theirs.
void Supervisor::beat() {
  if (ended_ || options_.processes == 1) return;
  delayed_send(this, PeerWatch::interval_of(options_.peer_timeout), BeatDue{});
  for (const auto& [address, process] : watched_) tell(this, process.supervisor, Heartbeat{options_.rank});
  for (const ProcessId silent : peers_.silent(clock().now())) {
    const auto found = std::ranges::find_if(watched_, [&](const auto& entry) { return entry.second.rank == silent; });
    if (found != watched_.end()) lost(found->second);
  }
}

void Supervisor::down(const caf::down_msg& message) {
  if (const auto own = own_.find(message.source); own != own_.end()) return own_ended(own->second, message.reason);
  if (const auto found = watched_.find(message.source); found != watched_.end()) lost(found->second);
}

void Supervisor::own_ended(const std::string& label, const caf::error& reason) {
  if (ended_) return;
  delayed_send(this, own_settle_time, Failure{label + " ended in mid-run: " + home_system().render(reason)});
}

void Supervisor::lost(const ProcessInfo& process) {
  if (ended_ || loss_) return;
  const bool neighbour = !is_root() && process.rank != ProcessId(0);
  if (finishing_ && (neighbour || summarised_.contains(process.rank))) return;  // it has ended in order
  if (neighbour) return lost_neighbour(process);
  if (finishing_ && !is_root()) {  // rank 0 has all summaries
    RunOutcome outcome;
    outcome.ok = true;
    ended_ = true;
    return options_.outcome->set(std::move(outcome));
  }
  note_loss(process);
}

void Supervisor::lost_neighbour(const ProcessInfo& process) {
  // Rank 0 also detects most of these losses and reports more: wait for its report first.
  delayed_send(this, 2 * options_.peer_timeout, NeighbourLost{process_label(process, *options_.graph)});
}

void Supervisor::note_loss(const ProcessInfo& process) {
  Loss loss;
  loss.rank = process.rank;
  loss.process = process.process;
  loss.peer = process.process.pid == 0 ? "process 0 (coordinator)" : process_label(process, *options_.graph);
  loss.step = std::to_string(options_.current_step->load(std::memory_order_relaxed));
  loss_ = std::move(loss);
  ask_survivors();
}

void Supervisor::ask_survivors() {
  if (!prints({loss_->rank})) return report_loss();
  delayed_send(this, settle_time, LossSettled{});
  for (const ProcessInfo& process : directory_.processes) {
    if (process.rank == loss_->rank || (!is_root() && process.rank != options_.rank)) continue;
    for (const ReplicaAddress& replica : process.replicas) {
      request(replica.actor, settle_time, StatusRequest{})
          .then([this](const WaitingFor& answer) { survivor_waits(answer); }, [](const caf::error&) {});  // SV-4
    }
  }
}

void Supervisor::survivor_waits(const WaitingFor& answer) {
  const std::string text = wait_text(answer, *options_.graph);
  if (text.empty() || !loss_) return;
  loss_->waiting.push_back("section '" + options_.graph->node(answer.section).name + "' replica " +
                           std::to_string(answer.replica.value()) + " waits for " + text);
}

std::string Supervisor::how_lost() const {
  const auto how = how_ended_.find(loss_->rank);
  if (how != how_ended_.end()) return "it ended with " + how->second;
  return is_root() ? "it was silent for too long" : "it died, or was silent for too long";
}

void Supervisor::report_loss() {
  ended_ = true;
  RunOutcome outcome;
  if (prints({loss_->rank})) {
    outcome.error = "lost " + loss_->peer + " in step " + loss_->step + ": " + how_lost();
    for (const std::string& waiting : loss_->waiting) outcome.error += "; " + waiting;
  }
  if (on_this_host(loss_->rank)) outcome.lost.push_back(loss_->process);
  if (is_root()) {
    const std::string told = "lost " + loss_->peer + " in step " + loss_->step + ": " + how_lost();
    for (const auto& [address, process] : watched_) {
      if (process.rank != loss_->rank) tell(this, process.supervisor, Failure{told});
    }
  }
  options_.outcome->set(std::move(outcome));
}

void Supervisor::fail(const std::string& message, bool print, bool root_knows) {
  if (ended_ || loss_) return;  // failures after a loss are its consequence
  ended_ = true;
  RunOutcome outcome;
  if (print) outcome.error = message;
  if (is_root()) {
    for (const auto& [address, process] : watched_) tell(this, process.supervisor, Failure{message});
  } else if (root_ && !root_knows) {
    // The process ends when the outcome is set, and messages not sent by then are lost.
    const auto set = [promise = options_.outcome, outcome] { promise->set(outcome); };
    request(root_, telling_limit, Failure{message}).then(set, [set](const caf::error&) { set(); });
    return;
  }
  options_.outcome->set(std::move(outcome));
}

void Supervisor::finish() {
  finishing_ = true;
  if (is_root()) {
    for (const ProcessInfo& process : directory_.processes) {
      if (process.rank != options_.rank) tell(this, process.supervisor, Finish{});
    }
    return summarised(options_.summary());
  }
  tell(this, root_, options_.summary());
}

void Supervisor::summarised(const ProcessSummary& summary) {
  summaries_.push_back(summary);
  summarised_.insert(summary.rank);
  if (static_cast<std::int64_t>(summaries_.size()) < options_.processes) return;
  for (const auto& [address, process] : watched_) tell(this, process.supervisor, Shutdown{});  // OM-1
  ended_ = true;
  RunOutcome outcome;
  outcome.ok = true;
  outcome.processes = summaries_;
  options_.outcome->set(std::move(outcome));
}

}  // namespace maestro
