// SPDX-License-Identifier: Apache-2.0
// Each process has a supervisor. Rank 0's supervisor gathers the others, connects the job, watches for deaths and ends
// the run; the others report to it and watch it.
//
// SV-1 (single outcome): the outcome of a process is decided once, by the first failure or by the orderly end.
// SV-2 (detection): CAF's down message detects a death, PeerWatch detects silence; the process that notices first
//       informs all others.
// SV-3 (one message per host): on each host the surviving process with the lowest number prints the error; where rank 0
//       starts lost processes again, rank 0 alone, unless it is the lost process.
// SV-4 (full report): a loss is reported `settle_time` after it was noticed, with the reports of the survivors and of
//       the launcher until then.
// SV-5 (full mesh): before handles of actors are exchanged, every process has its own connection to every other
//       process, and watches it. Two processes that lose each other while rank 0 reaches both also end the run.
// SV-6 (no silent actor end): the end of any actor of the process before the run's end, and an exception in the
//       supervisor itself, fail the run.
// SV-7 (failed transfers wait): a failed transfer fails the run 1.5 peer timeouts after its report, so that the death
//       of the peer, which explains it, is reported instead where there is one.
// SV-8 (seats): if a lost process has only replicas of repeatable sections that other processes have, too, those take
//       its seats (adopt_seats), and the run goes on. A further loss during a move ends the run, or this start of it.
// SV-9 (successors): rank 0 starts a process that was lost so again, and the successor takes the seats that it had at
//       the start. If no other process has its sections, the others wait for the successor.
// SV-10 (joining, leaving): a process that joins the running job takes a fair share of the replicas of one section
//       (share_seats); a process leaves where others can take its seats. Each is a move of seats without a loss.
// SV-11 (elastic sections): rank 0 starts one more process for such a section where its consumers wait for it, and ends
//       one of those that it has started so where they have nothing to do (SeatBalance).
// SV-12 (rescue): before rank 0 reports a loss that it recovers from, it has the coordinator make a checkpoint of the
//       survivors' state, within `rescue_limit`; the survivors stay until then. A further loss, or a failure, ends the
//       wait.
// SV-13 (survivors): before rank 0 ends a start that another start follows, the processes of the start that can take
//       part in the next one answer so; one that has failed by itself cannot. They take down their own part when rank
//       0's supervisor ends, which has their answers by then.
// SV-14 (lost at a start): a process that is stopped or silent while the processes start again is one more loss, and
//       another start follows.
// SV-15 (checkpoint first): while a stop of the run is under way, rank 0 judges a failure of its transport `stop_grace`
//       after its report, as the checkpoint of the stop may not need the transport. No process joins or leaves any
//       more, unless the run waits for it.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
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
#include "actors/run/run_membership.hpp"
#include "actors/run/seat_balance.hpp"
#include "actors/run/seat_change.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

struct RunOutcome {
  bool ok = false;
  std::string error;  ///< a single line; empty when another process prints it
  std::vector<ProcessSummary> processes;
  std::vector<ProcessIdentity> lost;  ///< of this host; stopped processes would stay for ever
  bool recoverable =
      false;  ///< a process other than rank 0, or of a served section, is lost, and nothing else is wrong
  std::chrono::steady_clock::time_point lost_at = std::chrono::steady_clock::now();  ///< when the loss was noticed
  bool left = false;           ///< this process has left the run, which goes on
  bool again = false;          ///< not on rank 0: this process takes part in the next start
  std::set<ProcessId> stay{};  ///< on rank 0: the other processes that do
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
[[nodiscard]] std::string process_label(const ProcessInfo& peer, const SectionGraph& graph);

/// An actor that must not end before the run does.
struct OwnActor {
  caf::actor actor;
  std::string label;  ///< "section 'student' replica 0"
};

/// Moves of seats (SV-8). The functions are called by the supervisor.
struct SeatMoves {
  std::size_t most = 0;                                ///< of this start; 0: seats do not move
  Epoch epoch;                                         ///< of the start
  std::function<void(const std::string& line)> begun;  ///< on rank 0, after a loss
  std::function<void(const std::string& line)> warn;   ///< on rank 0
  /// The process is not to run any more, nor to be written to; `here`: it is on this host.
  std::function<void(const ProcessInfo& lost, bool here)> bury;
  std::function<void(ProcessId)> left;  ///< the process is not to be written to any more, and ends by itself
  /// Returns the new replicas of repeatable sections in this process.
  std::function<std::vector<OwnActor>(const MoveSeats&)> take;
  std::function<void(ProcessId)> start;   ///< on rank 0: starts a lost process again; empty: nothing can
  std::function<void(ProcessId)> seated;  ///< on rank 0: the successor takes part in the run
  bool may_join = false;                  ///< processes may join the job, and leave it
  bool by_hand = false;                   ///< this process has joined by a user's command, in a terminal of its own
  std::vector<std::string> elastic;       ///< on rank 0: sections (SV-11)
  std::function<void(const std::string& line)> note;                     ///< on rank 0
  std::function<void(ProcessId, const std::string& section)> start_new;  ///< on rank 0: for an elastic section
};

struct SupervisorOptions {
  const SectionGraph* graph = nullptr;
  ProcessId process;
  std::vector<std::uint32_t> hosts = {0};  ///< of each process that the job may have
  std::size_t joining = 0;                 ///< the last of these are not there at the start
  std::string host;                        ///< of this process, as named by the user; empty in a job on a single host
  bool started_again = false;              ///< a process that ends during this start is lost, as it would be later
  bool recovers = false;                   ///< rank 0 starts lost processes again, and reports every loss but its own
  bool rescues = false;                    ///< on rank 0: this start may be followed by another
  bool stays = false;                      ///< not on rank 0: this process can take part in the next start
  std::function<bool()> may_recover;       ///< on rank 0: whether a lost process is followed by another start
  std::chrono::milliseconds start_timeout{60000};
  std::chrono::milliseconds join_timeout{
      60000};  ///< for all processes, after the rendezvous, to reach rank 0's supervisor
  std::chrono::milliseconds peer_timeout{2000};  ///< after which rank 0 has also noticed a lost process
  /// On rank 0: returns a line about a child that has been stopped for too long. Called until all processes have
  /// joined, with the time since the call before. May be empty.
  std::function<std::optional<std::string>(std::chrono::milliseconds since)> stopped_child;
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
  std::function<bool()> stopping;                             ///< on rank 0: a stop is under way; may be empty
  SeatMoves seats;
};

/// The first message to a supervisor: the supervisor that it reports to.
struct JoinRoot {
  caf::actor root;  ///< rank 0's supervisor; on rank 0 the receiver itself
};

/// The process's own actors, sent after they were spawned.
struct LocalActors {
  ProcessInfo info;
  caf::actor coordinator;     ///< rank 0 only
  std::vector<OwnActor> own;  ///< all actors of the process
};

/// A lost process, and the waits of the survivors.
struct Loss {
  std::chrono::steady_clock::time_point noticed;
  ProcessIdentity identity;
  std::string peer;
  std::string step;
  std::vector<std::string> waiting;
};

/// To the supervisor itself: the time to collect reports about a loss is over.
struct LossSettled {};
/// To the supervisor itself: the time for all processes to connect to each other is over.
struct WiringTimeout {};
/// To the supervisor itself: heartbeats are due.
struct BeatDue {};
/// To the supervisor itself: rank 0 has had the time to notice this loss itself.
struct NeighbourLost {
  caf::actor_addr supervisor;
  std::string peer;
};
/// To the supervisor itself: a failed transfer is to be judged (SV-7).
struct TransferJudgement {
  std::string message;
  caf::actor_addr reporter;
};
/// To the supervisor itself: the run has not stopped in order meanwhile (SV-15).
struct StopJudgement {
  Failure failure;
};
/// To the supervisor itself: a look at elastic sections is due.
struct LookDue {};
/// To the supervisor itself: seats should have moved by now.
struct MoveTimeout {
  Epoch epoch;
};

/// A process that rank 0 starts again, or that joins.
struct Successor {
  ProcessId process;
  std::string section;              ///< whose seats it takes; empty: those that it had at the start
  std::optional<ProcessInfo> info;  ///< once it has introduced itself
  bool connected = false;           ///< to all others
};

class Supervisor : public caf::event_based_actor {
 public:
  Supervisor(caf::actor_config& config, SupervisorOptions options);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.supervisor"; }
  void on_exit() override;
  caf::invoke_message_result consume(caf::mailbox_element& message) override {
    order_after_receipt(*this);
    return caf::event_based_actor::consume(message);
  }

 private:
  void join(const JoinRoot& message);
  void joined(const ProcessJoined& peer);
  void start(const LocalActors& local);
  void introduced(const ProcessInfo& info);
  void watch(const ProcessInfo& peer);
  void connect_neighbours(const PeerList& neighbours);
  /// Of a successor: takes note of the processes that are not there.
  void miss_absent(const PeerList& present);
  void connect_to(const PeerAddress& neighbour);
  void ping(const PeerAddress& neighbour, const caf::actor& supervisor);
  void cannot_connect(const PeerAddress& neighbour, const std::string& problem);
  void pinged(ProcessId process, const caf::actor& supervisor);
  void connected(const PeersConnected& from);
  void start_timed_out();
  void wiring_timed_out();
  void wire(const Directory& directory);
  void connect_transport();
  /// Throws JobError.
  void connect_memory();
  void ready(const ProcessReady& ready);
  void down(const caf::down_msg& down);
  void own_ended(const std::string& label, const caf::error& reason);
  void begin_to_beat();
  void beat();
  void lost(const ProcessInfo& peer);
  void note_loss(const ProcessInfo& peer);
  void query_survivors();
  void survivor_waits(const WaitingFor& answer);
  [[nodiscard]] bool prints() const;
  /// Returns whether a failed transfer or connection may come from the loss of a process whose seats have moved, or of
  /// one that is to take part in another start; rank 0 decides.
  [[nodiscard]] bool may_follow_loss() const {
    const bool begins_again = options_.started_again && membership_.phase() < RunPhase::running;
    return moves_ > 0 || begins_again || !membership_.is_root();
  }
  [[nodiscard]] std::string loss_text(ProcessId lost) const;
  void rescue_state();
  void not_rescued(const std::string& problem);
  void report_loss();
  void neighbour_lost(const NeighbourLost& loss);
  void child_ended(const ChildEnded& child);
  void fail(const Failure& failure, bool print, bool from_root = false, bool recoverable = false);
  // Survivors (SV-13); supervisor_losses.cpp.
  void end_start(RunOutcome outcome, const std::string& reason, bool again);
  caf::result<StartAgain> stay();
  void failure_reported(const Failure& failure);
  void interrupt();
  void finish();
  void summarised(const ProcessSummary& summary);
  void end_in_order(std::vector<ProcessSummary> summaries = {});
  // Moves of seats; supervisor_seats.cpp.
  /// Returns false if the seats of the lost process cannot move.
  bool move_seats_of(const ProcessInfo& lost);
  void note_move(const ProcessInfo& lost, const std::string& what_follows);
  void begin_move(const MoveSeats& moves, Directory directory);
  void forget(ProcessId process, bool lost = true);
  void move_seats(const MoveSeats& order);
  std::vector<OwnActor> take_seats(const MoveSeats& order);
  void cannot_move(const std::string& problem);
  void replica_moved(const ReplicaAddress& address);
  void seats_taken(const SeatsTaken& answer);
  void seats_moved(const SeatsMoved& moved);
  void seats_ready(const SeatsReady& answer);
  void move_timed_out(const MoveTimeout& move);
  // Successors; supervisor_successors.cpp.
  /// Returns false if the seats of the lost process cannot wait for a successor.
  bool hold_seats_of(const ProcessInfo& lost);
  void process_gone(const ProcessGone& lost);
  void start_next();
  [[nodiscard]] bool is_successor(ProcessId process) const { return successor_ && successor_->process == process; }
  void successor_introduced(const ProcessInfo& info);
  /// Moves the seats of the successor, once it is connected and no other seats move.
  void seat_successor();
  void move_ended();
  /// At the end of the run: a successor that has no seats yet is not awaited.
  void leave_out_successor();
  void successor_failed(const SuccessorFailed& failure);
  // Processes that join and leave (SV-10); supervisor_joining.cpp.
  [[nodiscard]] bool joins_later(ProcessId process) const {
    return process.value() + options_.joining >= options_.hosts.size();
  }
  [[nodiscard]] std::string why_nothing_moves() const;
  [[nodiscard]] bool stops() const { return options_.stopping && options_.stopping(); }
  SeatAnswer let_join(const JoinWanted& wanted);
  SeatAnswer let_leave(const LeaveWanted& wanted);
  void dismiss_leaver();
  void leave_by_signal();
  // Elastic sections (SV-11); supervisor_elastic.cpp.
  void look_at_seats();
  void judge(const std::string& section);
  void one_more(const std::string& section);
  void one_less(const std::string& section);
  void leave_run();

  SupervisorOptions options_;
  RunMembership membership_;
  LocalActors local_;
  Directory directory_;
  caf::actor root_;
  std::map<caf::actor_addr, ProcessInfo> watched_;
  std::map<caf::actor_addr, std::string> own_;  // labels of the process's own actors
  PeerWatch peers_;
  bool beats_ = false;
  std::chrono::steady_clock::time_point connect_until_;
  std::vector<ProcessSummary> summaries_;        // on rank 0
  Loss loss_;                                    // while the survivors are queried, or seats move
  bool rescuing_ = false;                        // on rank 0: the coordinator has been sent Rescue
  SeatChange change_;                            // on rank 0
  std::size_t moves_ = 0;                        // on rank 0: losses after which seats have moved
  std::uint32_t generation_ = 0;                 // on rank 0: moves
  std::string move_reason_;                      // on rank 0
  std::vector<Seat> home_;                       // on rank 0: the seats at the start
  std::deque<ProcessId> to_start_;               // on rank 0
  std::optional<Successor> successor_;           // on rank 0: from its start until it has its seats
  caf::actor leaver_;                            // on rank 0: a supervisor, while its seats move
  std::map<std::string, SeatBalance> balances_;  // on rank 0: of elastic sections
  std::vector<WaitingFor> looked_;               // on rank 0: answers to the last look
  std::set<ProcessId> started_new_;              // on rank 0: processes of elastic sections
  std::set<ProcessId> held_;                     // lost processes whose successors the run waits for
  std::set<ProcessId> transported_;              // processes whose memory this one is connected to
  SeatsTaken taken_;                             // while own replicas move
  std::size_t answers_due_ = 0;                  // of own replicas
  std::set<caf::actor_addr> retired_;
  bool staying_ = false;  // not on rank 0: whose supervisor's end is awaited
  bool ends_ = false;     // not on rank 0: this process has failed, and ends when rank 0 has the reason
};

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::LossSettled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::NeighbourLost)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::TransferJudgement)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::StopJudgement)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::MoveTimeout)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::BeatDue)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::LookDue)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::WiringTimeout)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::JoinRoot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::LocalActors)
