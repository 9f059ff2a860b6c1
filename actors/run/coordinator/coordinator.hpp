// SPDX-License-Identifier: Apache-2.0
// The wavefront coordinator: requests a plan of each global batch, sends work items to their lanes, keeps a bounded
// number of units announced, and counts their ends. Its parts order the units (RunSchedule), record finished work
// (StepRecorder), make checkpoints (RunCheckpoints), answer spikes (SpikeResponse) and losses (LossRescue), and keep
// the requests of the control service (ControlRequests).
//
// CR-1 (single order): lanes receive micro-batches and step boundaries in the order of RunSchedule.
// CR-2 (bounded lead): at most `ahead` training steps are announced beyond the oldest unfinished unit.
// CR-3 (whole checkpoints): a checkpoint is committed only when every trained section has written its part of the same
//       step.
// CR-4 (no lost request): every request of the control service is answered, at the latest when the run has ended.
// CR-5 (moved placements): after BeginAgain every unit that is open ends as if its work items had been sent only once.
// CR-6 (rescue): after a Rescue nothing is announced. The checkpoint that it makes is of the last finished step; a
//       validation and a checkpoint of that step that have not ended are the first units of the run that goes on.
// CR-7 (rollback): a spike that lasts is answered with guard.action = "rollback" by no further step. The run ends when
//       all that was announced and a checkpoint have ended; the starting thread has the way back in
//       RunRecord::rollback.
// CR-8 (lasting pause): a pause outlives the loss of a process. The run that goes on does the steps again up to the one
//       that it stood still after, and is paused there.
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
  void announce();
  void plan(const BatchMetadata& batch);
  bool leave_out(const BatchMetadata& batch);
  /// Returns false, and fails the run, at the batch by which every training sample was drawn, or as many as there are
  /// steps for, and all of them were left out.
  bool trains_something(const BatchMetadata& batch);
  void announce_step(const StepPlanned& planned);
  void placements_lost(const PlacementsLost& loss) { recorder_.placements_lost(loss); }
  void begin_again(const BeginAgain& moved);
  void open_phase(StepId step, const PhaseCounts::Opening& opening);
  void phase_pass_done(const PhasePassDone& message);
  /// Sends the end of the step to the replicas that have not reported it; `again`: only of repeatable sections.
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
  /// Leaves the rollback to the starting thread, after all that was announced has ended.
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
  void interrupt();
  void resume_run();
  void answer_pauses();

  CoordinatorOptions options_;
  RunSchedule schedule_;
  std::map<SectionId, std::vector<caf::actor>> replicas_;
  std::size_t replicas_in_all_ = 0;
  std::shared_ptr<const Directory> directory_;  // shared with answers to the control service
  OpenUnits open_;
  bool awaiting_batch_ = false;
  bool any_kept_ = false;  // some training sample drawn so far could be read
  bool began_ = false;
  bool finished_ = false;
  std::optional<ForwardReplay> replay_;  // none: placements do not move
  NormTotals norms_;
  PlanStep next_plan_;  // next request to the planner, without its batch
  StepRecorder recorder_;
  RunCheckpoints checkpoints_;
  SpikeResponse spikes_;
  std::optional<LossRescue> rescue_;  // none before a loss
  ControlRequests requests_;
  bool pause_noted_ = false;
};

}  // namespace maestro
