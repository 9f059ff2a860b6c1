// SPDX-License-Identifier: Apache-2.0
// The wavefront coordinator: requests a plan for each global batch, sends work items to their lanes, keeps a bounded
// number of units announced, and counts the finished ones. Its parts order the units (RunSchedule), record finished
// work (StepRecorder), make checkpoints (RunCheckpoints), answer spikes (SpikeResponse) and lost processes
// (LossRescue), and keep the requests of the control service (ControlRequests).
//
// CR-1 (single order): lanes receive micro-batches and step boundaries in the order of RunSchedule.
// CR-2 (bounded lead): at most `ahead` training steps are announced beyond the oldest unfinished unit.
// CR-3 (complete checkpoints): a checkpoint is committed only after every trained section has written its part for the
//       same step.
// CR-4 (no lost request): every request of the control service is answered, at the latest when the run has ended.
// CR-5 (moved placements): after BeginAgain every open unit ends as if its work items had been sent only once.
// CR-6 (rescue): after a Rescue nothing is announced. The rescue's checkpoint is of the last finished step; if a
//       validation or a checkpoint of that step has not ended, the continued run begins with it.
// CR-7 (rollback): after a lasting spike with guard.action = "rollback" no further step is announced. The run ends
//       after all announced units and a checkpoint; RunRecord::rollback then describes the rollback to the starting
//       thread.
// CR-8 (lasting pause): a pause outlives the loss of a process. The continued run repeats the steps up to the one after
//       which it was paused, and is paused there again.
#pragma once

#include "actors/messages/run_actor.hpp"
#include "actors/run/coordinator/control_requests.hpp"
#include "actors/run/coordinator/loss_rescue.hpp"
#include "actors/run/coordinator/run_checkpoints.hpp"
#include "actors/run/coordinator/spike_response.hpp"
#include "actors/run/record/step_recorder.hpp"

namespace maestro {

class Coordinator : public RunActor {
 public:
  Coordinator(caf::actor_config& config, CoordinatorOptions options);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.coordinator"; }
  void on_exit() override;

 private:
  [[nodiscard]] std::string where() const override;
  /// Wraps the handler of a progress message (CoordinatorOptions::events).
  template <class Message>
  [[nodiscard]] auto progress(void (Coordinator::*handle)(const Message&)) {
    return [this, handle](const Message& message) {
      if (options_.events != nullptr) options_.events->fetch_add(1, std::memory_order_relaxed);
      (this->*handle)(message);
    };
  }
  void begin(const Begin& begin);
  void connect(const Directory& directory);
  [[nodiscard]] bool makes_samples() const { return !options_.generator.empty(); }
  [[nodiscard]] bool awaits_samples() const;
  void announce();
  void plan(const BatchMetadata& batch);
  bool leave_out(const BatchMetadata& batch);
  /// Returns false, and fails the run, if every sample was left out so far, and all training samples, or all that the
  /// run's steps need, have been drawn.
  bool trains_something(const BatchMetadata& batch);
  void announce_step(const StepPlanned& planned);
  void placements_lost(const PlacementsLost& loss) { recorder_.placements_lost(loss); }
  void begin_again(const BeginAgain& moved);
  void open_phase(StepId step, const PhaseCounts::Opening& opening);
  void phase_pass_done(const PhasePassDone& message);
  /// Sends the end of the step to the replicas that have not reported it; `again`: only to repeatable sections.
  void send_end_of_step(const OpenUnit& open, bool again);
  void micro_batch_done(const MicroBatchDone& message);
  void step_done(const StepDone& message);
  void norm_reported(const NormReport& report);
  void close(UnitKey key);
  void finish_if_done();

  // Checkpoints (CR-3).
  void announce_checkpoint(const RunUnit& unit);
  void snapshot_written(const SnapshotWritten& written);
  void commit(const RunUnit& unit);
  void committed(const CheckpointCommitted& committed);
  // Rollback (CR-7).
  [[nodiscard]] SpikeResponse::Kept base_receiver();
  void base_kept(const SpikeBase& base);
  /// Leaves the rollback to the starting thread, after all announced units have ended.
  void go_back();
  // The loss of a process (CR-6).
  caf::result<Rescued> rescue(const Rescue& loss);
  void write_rescued();

  // Requests of the control service (CR-4).
  [[nodiscard]] RunState state() const;
  [[nodiscard]] StepId last_step() const;
  [[nodiscard]] RunStatus status() const;
  caf::result<CheckpointAnswer> checkpoint_requested();
  caf::result<PauseAnswer> pause_requested(const PauseRequest& request);
  void interrupt(const std::string& reason);
  /// Takes back a step whose samples generators still make.
  void withdraw_step();
  /// Prints the step after which the run ends.
  void resume_run();
  void answer_pauses();

  CoordinatorOptions options_;
  RunSchedule schedule_;
  std::map<SectionId, std::vector<caf::actor>> replicas_;
  std::size_t replicas_in_all_ = 0;
  std::shared_ptr<const Directory> directory_;  // shared with answers to the control service
  OpenUnits open_;
  std::optional<UnitKey> awaited_;  // unit whose batch is requested
  bool any_kept_ = false;           // at least one training sample drawn so far could be read
  bool began_ = false;
  bool finished_ = false;
  std::optional<ForwardReplay> replay_;  // none: placements do not move
  NormTotals norms_;
  PlanStep next_plan_;  // next request to the planner, before its batch is known
  StepRecorder recorder_;
  RunCheckpoints checkpoints_;
  SpikeResponse spikes_;
  std::optional<LossRescue> rescue_;  // none before a loss
  ControlRequests requests_;
  bool pause_noted_ = false;
};

}  // namespace maestro
