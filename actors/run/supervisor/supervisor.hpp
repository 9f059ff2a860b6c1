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
// SV-8 (placements): if a lost process has only replicas of repeatable sections that other processes have, too, those
// take
//       its placements (adopt_placements), and the run goes on. A further loss during a move ends the run, or this
//       start of it.
// SV-9 (replacements): rank 0 starts a process that was lost so again, and the replacement takes the placements that it
// had at
//       the start. If no other process has its sections, the others wait for the replacement.
// SV-10 (joining, leaving): a process that joins the running job takes a fair share of the replicas of one section
//       (share_placements); a process leaves where others can take its placements. Each is a move of placements without
//       a loss.
// SV-11 (elastic sections): rank 0 starts one more process for such a section where its consumers wait for it, and ends
//       one of those that it has started so where they have nothing to do (PlacementBalance).
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

#include <optional>
#include <string>

#include "actors/run/supervisor/elastic_watch.hpp"
#include "actors/run/supervisor/loss_report.hpp"
#include "actors/run/supervisor/own_replicas.hpp"
#include "actors/run/supervisor/peer_mesh.hpp"
#include "actors/run/supervisor/placement_mover.hpp"
#include "actors/run/supervisor/start_end.hpp"
#include "actors/run/supervisor/supervised_run.hpp"

namespace maestro {

/// The first message to a supervisor: the supervisor that it reports to.
struct JoinRoot {
  caf::actor root;  ///< rank 0's supervisor; on rank 0 the receiver itself
};

/// To the supervisor itself: the time to collect reports about a loss is over.
struct LossSettled {};
/// To the supervisor itself: the time for all processes to connect to each other is over.
struct WiringTimeout {};
/// To the supervisor itself: heartbeats are due.
struct BeatDue {};
/// To the supervisor itself: rank 0 has had the time to notice this loss itself.
struct PeerLost {
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
  void connect_peers(const PeerList& peers);
  /// Notes which processes are not there, in a process that comes to a running job.
  void miss_absent(const PeerList& present);
  void pinged(ProcessId process, const caf::actor& supervisor);
  void connected(const PeersConnected& from);
  void start_timed_out();
  void wiring_timed_out();
  void wire(const Directory& directory);
  void ready(const ProcessReady& ready);
  void child_ended(const ChildEnded& child);
  void begin_to_beat();
  void beat();
  void down(const caf::down_msg& down);
  // Losses and failures.
  void lost(const ProcessInfo& peer);
  void note_loss(const ProcessInfo& peer);
  void query_survivors();
  void rescue_state();
  void report_loss();
  void peer_lost(const PeerLost& loss);
  void failure_reported(const Failure& failure);
  void judge(const TransferJudgement& broken);
  /// Returns whether a failed transfer or connection may come from the loss of a process whose placements have moved,
  /// or of one that is to take part in another start; rank 0 decides.
  [[nodiscard]] bool may_follow_loss() const;
  void interrupt();
  // Moves of placements.
  void move_placements(const MovePlacements& order);
  void seats_moved(const PlacementsMoved& moved);
  void process_gone(const ProcessGone& gone);
  PlacementAnswer let_join(const JoinWanted& wanted);
  void leave_by_signal();
  // Elastic sections (SV-11).
  void look_at_placements();
  void one_more(const std::string& section);
  void one_less(const std::string& section);

  SupervisedRun run_;
  PeerMesh mesh_;
  OwnReplicas own_;
  PlacementMover mover_;
  ElasticWatch elastic_;
  StartEnd end_;
  std::optional<LossReport> loss_;  // while the survivors are queried
  bool rescuing_ = false;           // on rank 0: the coordinator has been sent Rescue
  bool beats_ = false;
};

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::LossSettled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::PeerLost)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::TransferJudgement)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::StopJudgement)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::BeatDue)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::LookDue)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::WiringTimeout)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::JoinRoot)
