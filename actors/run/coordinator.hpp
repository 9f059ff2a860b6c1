// SPDX-License-Identifier: Apache-2.0
// The wavefront coordinator: requests a plan of each global batch, sends work items to their lanes, keeps a bounded
// number of units announced, gathers metrics, commits checkpoints. A thin shell around RunSchedule and StepWatch.
//
// CR-1 (single order): lanes receive micro-batches and step boundaries in the order of RunSchedule.
// CR-2 (bounded lead): at most `ahead` training steps are announced beyond the oldest unfinished unit.
// CR-3 (whole checkpoints): a checkpoint is committed only when every trained section has written its part of the same
//       step.
// CR-4 (no lost request): every request of the control service is answered, at the latest when the run has ended.
// CR-5 (moved seats): after BeginAgain every unit that is open ends as if its work items had been sent only once.
// CR-6 (rescue): after a Rescue nothing is announced. The checkpoint that it makes is of the last finished step; a
//       validation and a checkpoint of that step that have not ended are the first units of the run that goes on.
// CR-7 (rollback): a spike that lasts is answered with guard.action = "rollback" by no further step. The run ends when
//       all that was announced and a checkpoint have ended; the starting thread has the way back in
//       RunRecord::rollback.
// CR-8 (lasting pause): a pause outlives the loss of a process. The run that goes on does the steps again up to the one
//       that it stood still after, and is paused there.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "actors/messages/message_types.hpp"
#include "actors/messages/run_actor.hpp"
#include "actors/run/control_messages.hpp"
#include "actors/run/norm_totals.hpp"
#include "actors/run/run_guard.hpp"
#include "actors/run/run_journal.hpp"
#include "actors/run/run_record.hpp"
#include "actors/run/run_schedule.hpp"
#include "actors/run/step_figures.hpp"
#include "actors/run/step_watch.hpp"
#include "actors/services/snapshot_writer.hpp"
#include "runtime/observe/console.hpp"
#include "runtime/observe/progress.hpp"
#include "runtime/schedule/data_cursor.hpp"
#include "runtime/state/checkpoint_archive.hpp"

namespace maestro {

struct CoordinatorOptions {
  const SectionGraph* graph = nullptr;
  RunScheduleOptions schedule;
  std::int64_t ahead = 2;
  std::int64_t global_batch = 1;
  std::uint64_t seed = 1;
  Manifest origin;                            ///< run, data and settings that every checkpoint records
  std::uint64_t epoch_samples = 1;            ///< of the training split
  bool synchronous = false;                   ///< a unit is announced when its predecessor has ended
  bool measure = false;                       ///< plans follow measured times
  PlanConfig predicted = {};                  ///< [plan]
  bool moves_seats = false;                   ///< replicas of repeatable sections may begin anew
  std::map<SectionId, StepId> trained_until;  ///< sections whose state was further than the first step at the start
  bool global_clip = false;                   ///< by the norm over all sections instead of each section's own
  bool joined_norms = false;                  ///< the norms of all trained sections are answered together
  std::int64_t max_left_out = 0;              ///< unreadable samples tolerated before the run fails
  std::shared_ptr<RunRecord> record;          ///< shared with the starting thread, which reads it when the run is over
  std::shared_ptr<RunJournal> journal;        ///< null: the run leaves no record
  std::optional<RunGuard> guard;              ///< none: losses are not judged
  /// Used by the coordinator alone, until the run is over.
  std::shared_ptr<StepFigures> figures = std::make_shared<StepFigures>();
  std::uint64_t rollbacks = 0;      ///< of the run so far
  DataCursor cursor;                ///< of the data
  std::uint64_t archive_every = 0;  ///< checkpoints of such steps are also kept in `archive`
  ArchiveForm archive_form = ArchiveForm::full;
  std::optional<CheckpointArchive> archive;  ///< where archive_every or the guard needs it
  SnapshotWriter* snapshots = nullptr;
  const CheckpointStore* shadows = nullptr;  ///< of checkpoints in memory; null: none are made
  Console* console = nullptr;
  std::function<void()> finishing;                     ///< called once, before the event `finished`; may be empty
  std::atomic<std::uint64_t>* current_step = nullptr;  ///< the oldest unfinished step; may be null
  std::atomic<std::uint64_t>* events = nullptr;        ///< incremented by every progress message; may be null
  caf::actor data_source;
  caf::actor planner;
  caf::actor supervisor;
};

/// Returns the section whose loss and samples stand for the run's: the first with a loss of its own.
[[nodiscard]] SectionId watched_section(const SectionGraph& graph);

class Coordinator : public RunActor {
 public:
  Coordinator(caf::actor_config& config, CoordinatorOptions options);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.coordinator"; }
  void on_exit() override;

 private:
  [[nodiscard]] std::string where() const override;
  struct Open {
    RunUnit unit;
    std::set<std::pair<SectionId, ReplicaIndex>> replicas_done;
    std::map<SectionId, std::size_t> section_done;
    std::map<SectionId, MetricTotals> totals;
    std::map<std::string, std::map<std::string, double>> figures;  // of a validation, by section
    std::map<SectionId, std::pair<double, double>> norm_and_lr;
    LaneReports lanes;
    std::vector<SampleRef> samples;
    StepWatch watch;
    std::vector<FileRecord> files;  // of the checkpoint
    std::size_t parts = 0;
    std::string staging;
    bool skipped = false;               // no section trains on the step
    std::map<SectionId, StepId> ahead;  // sections whose part of the checkpoint is of a later step
  };
  using Key = std::pair<std::uint64_t, RunUnit::Kind>;
  [[nodiscard]] static bool is_checkpoint(RunUnit::Kind kind) {
    return kind == RunUnit::Kind::checkpoint || kind == RunUnit::Kind::shadow;
  }
  [[nodiscard]] static Pass pass_of(RunUnit::Kind kind) {
    return kind == RunUnit::Kind::train ? Pass::train : Pass::evaluate;
  }
  [[nodiscard]] static Key key_of(StepId step, Pass pass) {
    return {step.value(), pass == Pass::train ? RunUnit::Kind::train : RunUnit::Kind::validate};
  }
  /// Wraps the handler of a progress message (CoordinatorOptions::events).
  template <class Message>
  [[nodiscard]] auto progress(void (Coordinator::*handle)(const Message&)) {
    return [this, handle](const Message& message) {
      if (options_.events != nullptr) options_.events->fetch_add(1, std::memory_order_relaxed);
      (this->*handle)(message);
    };
  }
  void begin(const Begin& begin);
  void note_recovery();
  void connect(const Directory& directory);
  void announce();
  void plan(const BatchMetadata& batch);
  bool leave_out(const BatchMetadata& batch);
  /// Returns false, and fails the run, at the batch by which every training sample was drawn, or as many as there are
  /// steps for, and all of them were left out.
  bool trains_something(const BatchMetadata& batch);
  void announce_step(const StepPlanned& planned);
  void seats_lost(const SeatsLost& loss);
  void begin_again(const BeginAgain& moved);
  void open_phase(StepId step, const PhaseCounts::Opening& opening);
  void phase_pass_done(const PhasePassDone& message);
  [[nodiscard]] const CheckpointStore& store_of(RunUnit::Kind kind) const {
    return kind == RunUnit::Kind::shadow ? *options_.shadows : options_.snapshots->store();
  }
  /// To the replicas that have not reported the end of the step; `again`: only of repeatable sections.
  void send_end_marks(const Open& open, bool again);
  void send_marks(const StepBoundary& mark);
  void micro_batch_done(const MicroBatchDone& message);
  void step_done(const StepDone& message);
  void section_finished(Open& open, SectionId section);
  void norm_reported(const NormReport& report);
  /// Returns the times of the lanes by "section/replica", the source's left out: it reads samples, and computes
  /// nothing.
  [[nodiscard]] std::map<std::string, LaneTimes> lanes_of(const Open& open) const;
  void close(Key key);
  void keep_measured(Open& open, double seconds);
  /// Compares the run with the prediction of its job, once.
  void compare_with_plan();
  void finish_if_done();
  void report_progress(StepId step);
  void print_validation(const Open& open) const;
  void note_event(const std::string& event, const EventFields& fields) const {
    if (options_.journal) options_.journal->event(event, fields);
  }
  /// Returns whether no section trains on the step; coordinator_guard.cpp.
  bool skips(Open& open, const NormTotals::Answers& norms);
  /// Judges the rows of a finished step.
  void guard(const std::vector<StepRow>& rows);
  void act_on(const GuardFinding& finding);
  void keep_base(std::uint64_t spike);
  void drop_base(std::uint64_t spike);
  void base_kept(const SpikeBase& base);
  void roll_back(const GuardFinding& finding);
  void go_back();
  // Checkpoints (CR-3); coordinator_checkpoints.cpp.
  void announce_checkpoint(const RunUnit& unit);
  void snapshot_written(const SnapshotWritten& written);
  [[nodiscard]] std::function<Status(const std::filesystem::path&)> archiving(StepId step) const;
  void commit(Open& open);
  void committed(const CheckpointCommitted& committed);
  // After the loss of a process (CR-6); coordinator_rescue.cpp.
  caf::result<Rescued> rescue(const Rescue& loss);
  [[nodiscard]] std::vector<caf::actor> trained_survivors(ProcessId lost) const;
  void stand_still(const std::vector<caf::actor>& replicas);
  /// Ends the open steps of each section that lacks nothing but reports of the lost process.
  void end_steps_of(ProcessId lost);
  void write_rescued();
  /// Whether the record has the section's figures of the step.
  [[nodiscard]] bool is_recorded(const Open& open, SectionId section) const;
  /// Whether sections may keep what they have trained after `step`: no validation or checkpoint lies between, and the
  /// record has their figures.
  [[nodiscard]] bool may_stay_ahead(StepId step, const std::map<SectionId, StepId>& ahead) const;
  /// Returns what is left after `step`, as units of this step.
  [[nodiscard]] std::vector<RunUnit> owed(StepId step) const;
  void rescued();
  // Requests of the control service; coordinator_control.cpp.
  [[nodiscard]] RunState state() const;
  [[nodiscard]] StepId last_step() const;
  [[nodiscard]] RunStatus status() const;
  [[nodiscard]] double recent_samples_per_s() const;
  [[nodiscard]] MetricsRows metrics(const MetricsRequest& request) const;
  caf::result<CheckpointAnswer> checkpoint_requested();
  void checkpoint_committed(const CheckpointCommitted& committed);
  caf::result<PauseAnswer> pause_requested(const PauseRequest& request);
  void resume_run();
  void answer_pauses();
  [[nodiscard]] std::size_t replicas_in_all() const;
  [[nodiscard]] std::size_t trained_sections() const;

  CoordinatorOptions options_;
  RunSchedule schedule_;
  std::map<SectionId, std::vector<caf::actor>> replicas_;
  std::map<Key, Open> open_;
  bool awaiting_batch_ = false;
  bool any_kept_ = false;  // of the training samples drawn so far
  bool finished_ = false;
  struct Rescuing {
    caf::response_promise answer;
    ProcessId lost;
    std::size_t due = 0;  // answers
    std::vector<std::pair<StandsStill, caf::actor>> standing;
    std::optional<Key> made;  // its checkpoint
    std::vector<RunUnit> owed;
    bool written = false;
  };
  std::optional<Rescuing> rescuing_;
  std::map<std::uint64_t, std::optional<SpikeBase>> bases_;  // by the spike's first step; none: being kept
  std::map<std::uint64_t, int> spiking_;                     // sections, by the spike's first step
  std::vector<GuardFinding> lasting_;                        // that wait for their base
  std::optional<Rollback> rolling_back_;
  std::optional<ForwardReplay> replay_;  // where seats move
  NormTotals norms_;
  PlanStep next_plan_;  // without a batch
  std::map<SectionId, std::chrono::steady_clock::time_point> last_step_end_;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point unit_started_;
  ProgressMeter meter_;
  double loss_ = 0;                      // of the watched section's last step
  std::map<std::string, double> parts_;  // likewise: its other figures
  bool began_ = false;
  std::shared_ptr<const Directory> directory_;  // shared with answers to the control service
  std::map<std::string, StepRow> latest_;       // by section
  std::optional<StepId> committed_;             // of RunRecord::checkpoint, when this run wrote it
  std::optional<StepId> newest_;                // of RunRecord::newest, likewise
  std::vector<std::pair<StepId, caf::response_promise>> checkpoint_requests_;
  std::vector<caf::response_promise> pause_requests_;
  bool pause_noted_ = false;
};

}  // namespace maestro
