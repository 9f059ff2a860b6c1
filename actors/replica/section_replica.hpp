// SPDX-License-Identifier: Apache-2.0
// The actor of a section replica: a thin shell that turns messages into calls of the lane and the ranks, and submits
// their work to the device threads. It never blocks; a handler does no arithmetic.
//
// RA-1 (ranks in step): all ranks run the same pass, or the same action of a boundary; the next begins when the last
//       rank has finished.
// RA-2 (failures): every failure is reported to the supervisor with section, replica and step; nothing is retried here.
// RA-3 (retired): after Retire the replica sends nothing. Its memory stays until its pass has ended and every write has
//       reached its deadline (EP-3).
// RA-4 (stands still): after StandsStill the replica keeps the state after the answer's step; it may only write this
//       state.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/messages/ready_queue.hpp"
#include "actors/messages/run_actor.hpp"
#include "actors/replica/lane_clock.hpp"
#include "actors/replica/pass_log.hpp"
#include "actors/replica/replica_ranks.hpp"
#include "actors/replica/replica_snapshot.hpp"
#include "actors/replica/weights/weight_publisher.hpp"
#include "runtime/schedule/step_end.hpp"

namespace maestro {

class SectionReplica : public RunActor, public RunsAnywhere {
 public:
  SectionReplica(caf::actor_config& config, ReplicaSpec spec);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.section_replica"; }
  void on_exit() override;
  /// Handles a message. Then sends the credits that became due, together to each sender.
  caf::invoke_message_result consume(caf::mailbox_element& message) override;

 private:
  using Work = ReplicaLane::Work;
  using Job = ReplicaRank::Job;
  [[nodiscard]] const GraphNode& node() const { return spec_.graph->node(spec_.section); }
  [[nodiscard]] ReplicaAddress address();
  void connect(const Directory& directory);
  void retire();
  void await_release();
  /// Returns the time after which writes from and to lost processes have ended.
  [[nodiscard]] std::chrono::milliseconds patience() const {
    return 2 * std::chrono::milliseconds(spec_.network->options().timeout_ms);
  }
  InputsRenewed renew_inputs(Epoch epoch);
  void pump();
  void start(const Work& work);
  void start_pass(const Work& work, bool forward, bool backward);

  // Actions of a boundary; section_replica_boundary.cpp.
  void start_boundary(const StepBoundary& boundary);
  void start_action();
  void action_done();
  /// Returns whether the ranks are in an exchange with other replicas.
  [[nodiscard]] bool exchanging() const;
  void publish();
  /// Continues an action that waits for other replicas, or for memory.
  void continue_action();
  void report_norm();
  void take_total();
  void report_step();
  /// Answers StandStill after the loss of a process (RA-4).
  caf::result<StandsStill> stand_still();
  [[nodiscard]] StandsStill stands_still();
  void write_now(const StepBoundary& snapshot);
  void boundary_passed();

  void phase_pass_done(const MicroBatchPlan& plan, ReplicaLane::Kind kind);
  void rank_done(const WorkDone& result);
  void done();
  void pass_done();
  ReplicaPorts::Arrived arrived(LayoutRank layout_rank);
  void check(const Status& status);
  void fail(const std::string& message, bool service_lost = false);
  [[nodiscard]] std::string where() const override;
  [[nodiscard]] WaitingFor status() const;
  [[nodiscard]] WaitingFor waits_for() const;
  /// Notes that an action of a boundary begins.
  void note_action();
  /// Notes that the replica cannot run anything.
  void idle();
  void note_wait();

  ReplicaSpec spec_;
  ReplicaRanks ranks_;
  ReplicaLane lane_;
  caf::actor coordinator_;

  bool busy_ = false;  // work_ runs: a pass or the actions of a boundary
  Work work_;
  StepEnd step_end_;
  StepId step_;
  using Clock = std::chrono::steady_clock;
  PassLog passes_;
  LaneClock clock_;
  std::optional<PassCost> emulated_;  // times of the running pass on an emulated device
  // Results of the boundary.
  double sum_of_squares_ = 0;          // sum over the section
  double clipped_sum_of_squares_ = 0;  // sum for clipping the gradients
  WorkDone end_;                       // lr and figures of the step
  WeightPublisher publisher_;
  std::optional<ReplicaSnapshot> snapshot_;  // none: no snapshot is being copied
  std::optional<NormTotal> norm_total_;      // last message; it may arrive before the replica awaits it
  StepId settled_;                           // last step that has changed the state
  bool still_ = false;                       // StandStill has arrived (RA-4)
  caf::response_promise standing_;           // its answer, sent after the running step
  std::map<caf::actor, Credits> credits_;    // credits of the current message
  bool failed_ = false;
  std::uint64_t events_ = 0;  // number of progress messages so far
  std::optional<TraceTime> idle_since_;
  std::string idle_reason_;
};

}  // namespace maestro
