// SPDX-License-Identifier: Apache-2.0
// Each process has a supervisor. Rank 0's supervisor gathers the others, connects the job, watches for deaths and ends
// the run; the others report to it and watch it.
//
// SV-1 (single outcome): a process's outcome is decided once, by the first failure or by the orderly end.
// SV-2 (detection): CAF's down message detects a death, PeerWatch detects silence; the process that notices first
//       informs all others.
// SV-3 (one message per host): on each host the surviving process with the lowest number prints the error. If rank 0
//       starts replacement processes, only rank 0 prints it, unless rank 0 is the lost process.
// SV-4 (full report): a loss is reported `settle_time` after it was noticed, with the reports received from survivors
//       and the launcher until then.
// SV-5 (full mesh): before actor handles are exchanged, every process connects to every other process and watches it.
//       If two processes lose each other while rank 0 reaches both, the run ends too.
// SV-6 (no silent actor end): the run fails if an actor of the process ends before the run, or if the supervisor throws
//       an exception.
// SV-7 (failed transfers wait): a failed transfer fails the run 1.5 peer timeouts after its report, so that the death
//       of the peer is reported instead if it is the cause.
// SV-8 (placements): if all replicas of a lost process are of repeatable sections, and other processes have replicas of
//       these sections, the other processes take its placements (adopt_placements), and the run continues. A further
//       loss during a move ends the run, or this start of it.
// SV-9 (replacements): rank 0 starts a replacement process, which takes the home placements of the lost process. If a
//       section has lost all of its replicas, the run waits for the replacement process.
// SV-10 (joining, leaving): a process that joins the running job takes a fair share of one section's replicas
//       (share_placements); a process may leave if others can take its placements. Both are moves without a loss.
// SV-11 (elastic sections): rank 0 starts one more process for an elastic section if its consumers wait for it, and
//       ends a process that it has started this way if the section's processes are idle (PlacementBalance).
// SV-12 (rescue): before rank 0 reports a recoverable loss, the coordinator makes a checkpoint of the survivors' state,
//       within `rescue_limit`; the survivors keep running until then. A further loss or a failure ends the wait.
// SV-13 (survivors): before rank 0 ends a start that another start follows, it asks each process whether it can take
//       part in the next one; a process that has itself failed declines. The others end their part when rank 0's
//       supervisor ends, after it has their answers.
// SV-14 (lost at a start): if a process stops or is silent while the processes start again, it counts as a further
//       loss, and another start follows.
// SV-15 (checkpoint first): while the run is being stopped, rank 0 judges a failed transfer `stop_grace` after its
//       report, as the final checkpoint may not need the transport. Processes no longer join or leave, unless the run
//       waits for them.
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

/// The first message to a supervisor: names the supervisor to which it reports.
struct JoinRoot {
  caf::actor root;  ///< rank 0's supervisor; on rank 0 the receiver itself
};

// Messages from the supervisor to itself:

/// The time to collect reports about a loss is over.
struct LossSettled {};
/// The time for all processes to connect to each other is over.
struct WiringTimeout {};
/// Heartbeats are due.
struct BeatDue {};
/// Rank 0 has had the time to notice this loss.
struct PeerLost {
  caf::actor_addr supervisor;
  std::string peer;
};
/// A failed transfer is to be judged (SV-7).
struct TransferJudgement {
  std::string message;
  caf::actor_addr reporter;
};
/// A failure is to be judged, as the run has not stopped in order meanwhile (SV-15).
struct StopJudgement {
  Failure failure;
};
/// A look at elastic sections is due.
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
  /// Notes the absent processes, when this process joins a running job.
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
  /// Returns whether a failed transfer or connection may come from a lost process whose placements have moved, or for
  /// which another start follows; rank 0 decides.
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
  std::optional<LossReport> loss_;  // set while the survivors are queried
  bool rescuing_ = false;           // rank 0: Rescue was sent to the coordinator
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
