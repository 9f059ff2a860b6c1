// SPDX-License-Identifier: Apache-2.0
// Each process has a supervisor. Rank 0's supervisor gathers the others, connects the job, watches for deaths and ends
// the run; the others report to it and watch it.
//
// SV-1 (single outcome): the outcome of a process is decided once, by the first failure or by the orderly end.
// SV-2 (detection): CAF's down message detects a death, PeerWatch detects silence; the process that notices first
//       informs all others.
// SV-3 (one message per host): on each host the surviving process with the lowest number prints the error.
// SV-4 (full report): a loss is reported `settle_time` after it was noticed, with the reports of the survivors and of
//       the launcher until then.
// SV-5 (full mesh): before handles of actors are exchanged, every process has its own connection to every other
//       process, and watches it. Two processes that lose each other while rank 0 reaches both also end the run.
// SV-6 (no silent actor end): the end of any actor of the process before the run's end, and an exception in the
//       supervisor itself, fail the run.
// SV-7 (failed transfers wait): a failed transfer fails the run 1.5 peer timeouts after its report, so that the death
//       of the peer, which explains it, is reported instead where there is one.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/run/peer_watch.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

struct RunOutcome {
  bool ok = false;
  std::string error;  ///< a single line; empty when another process prints it
  std::vector<ProcessSummary> processes;
  std::vector<ProcessIdentity> lost;  ///< of this host; stopped processes would stay for ever
};

/// Set once; read by the process's main thread.
class OutcomePromise {
 public:
  void set(RunOutcome outcome) {
    if (!decided_.exchange(true)) promise_.set_value(std::move(outcome));  // SV-1
  }
  [[nodiscard]] std::future<RunOutcome> future() { return promise_.get_future(); }

 private:
  std::atomic<bool> decided_ = false;
  std::promise<RunOutcome> promise_;
};

/// Returns "process 2 (pid 4711, section 'student' replica 0)"; with ", host node3" in jobs on several hosts.
[[nodiscard]] std::string process_label(const ProcessInfo& process, const SectionGraph& graph);

struct SupervisorOptions {
  const SectionGraph* graph = nullptr;
  ProcessId rank;
  std::int64_t processes = 1;
  std::vector<std::uint32_t> hosts = {0};  ///< by rank
  std::string host;                        ///< of this process, as named by the user; empty in a job on a single host
  std::chrono::milliseconds start_timeout{60000};
  std::chrono::milliseconds join_timeout{
      60000};  ///< for all processes, after the rendezvous, to reach rank 0's supervisor
  std::chrono::milliseconds peer_timeout{2000};  ///< after which rank 0 has also noticed a lost process
  std::string build;
  /// Connects to a published supervisor, from a handler of this supervisor. Unused by up to two processes.
  std::function<void(caf::event_based_actor*, const std::string& host, std::uint16_t port,
                     std::function<void(const caf::actor&)> done,
                     std::function<void(const std::string& problem)> failed)>
      connect;
  /// Called by the supervisor when all connections between processes are made; may be empty.
  std::function<void(caf::event_based_actor*)> connected;
  std::shared_ptr<OutcomePromise> outcome;  ///< shared with the main thread
  std::atomic<std::uint64_t>* current_step = nullptr;
  std::function<ProcessSummary()> summary;
  std::function<void(const ProcessInfo&)> connect_transport;  ///< to a process's memory; throws JobError; may be empty
  std::function<void()> stop_run;                             ///< on rank 0: ends the run in order; may be empty
};

/// The first message to a supervisor: the supervisor that it reports to.
struct JoinRoot {
  caf::actor root;  ///< rank 0's supervisor; on rank 0 the receiver itself
};

/// An actor that must not end before the run does.
struct OwnActor {
  caf::actor actor;
  std::string label;  ///< "section 'student' replica 0"
};

/// The process's own actors, sent after they were spawned.
struct LocalActors {
  ProcessInfo hello;
  caf::actor coordinator;     ///< rank 0 only
  std::vector<OwnActor> own;  ///< all actors of the process
};

/// A lost process, and the waits of the survivors.
struct Loss {
  ProcessId rank;
  ProcessIdentity process;
  std::string peer;
  std::string step;
  std::vector<std::string> waiting;
};

class Supervisor : public caf::event_based_actor {
 public:
  Supervisor(caf::actor_config& config, SupervisorOptions options);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.supervisor"; }
  void on_exit() override;

 private:
  [[nodiscard]] bool is_root() const { return options_.rank == ProcessId(0); }
  /// Whether this process prints the error (SV-3), with these processes lost.
  [[nodiscard]] bool prints(const std::set<ProcessId>& lost) const;
  [[nodiscard]] bool on_this_host(ProcessId rank) const;
  void join(const JoinRoot& message);
  void joined(const ProcessJoined& process);
  void introduced(const ProcessInfo& hello);
  void watch(const ProcessInfo& process);
  void meet(const PeerList& neighbours);
  void connect_to(const PeerAddress& neighbour);
  void greet(const PeerAddress& neighbour, const caf::actor& supervisor);
  void cannot_connect(const PeerAddress& neighbour, const std::string& problem);
  void met(ProcessId rank, const caf::actor& supervisor);
  void check_met();
  void neighbours_met();
  void start_timed_out();
  void wiring_timed_out();
  void wire(const Directory& directory);
  void connect_transport();
  void ready(const ProcessReady& ready);
  void down(const caf::down_msg& down);
  void own_ended(const std::string& label, const caf::error& reason);
  void beat();
  void lost(const ProcessInfo& process);
  void lost_neighbour(const ProcessInfo& process);
  void note_loss(const ProcessInfo& process);
  void ask_survivors();
  void survivor_waits(const WaitingFor& answer);
  [[nodiscard]] std::string how_lost() const;
  void report_loss();
  void child_ended(const ChildEnded& child);
  void fail(const std::string& message, bool print, bool root_knows = false);
  void finish();
  void summarised(const ProcessSummary& summary);

  SupervisorOptions options_;
  LocalActors local_;
  Directory directory_;
  caf::actor root_;
  std::map<caf::actor_addr, ProcessInfo> watched_;
  std::map<caf::actor_addr, std::string> own_;  // labels of the process's own actors
  PeerWatch peers_;
  std::size_t joined_ = 0;   // on rank 0
  bool introduced_ = false;  // the list of processes has arrived
  std::set<ProcessId> met_;
  bool all_told_ = false;  // reported to rank 0: connected to all others
  std::chrono::steady_clock::time_point meet_until_;
  std::size_t all_met_ = 0;  // on rank 0: processes connected to all others
  std::size_t ready_ = 0;
  bool wired_ = false;
  bool finishing_ = false;
  bool ended_ = false;
  std::vector<ProcessSummary> summaries_;
  std::set<ProcessId> summarised_;
  std::map<ProcessId, std::string> how_ended_;  // of children, from their parent's wait
  std::optional<Loss> loss_;                    // while the survivors are queried
};

/// To the supervisor itself: the time to collect reports about a loss is over.
struct LossSettled {};
/// To the supervisor itself: the time for all processes to connect to each other is over.
struct WiringTimeout {};
/// To the supervisor itself: heartbeats are due.
struct BeatDue {};
/// To the supervisor itself: rank 0 has had the time to notice this loss itself.
struct NeighbourLost {
  std::string peer;
};

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::LossSettled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::NeighbourLost)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::BeatDue)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::WiringTimeout)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::JoinRoot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::LocalActors)
