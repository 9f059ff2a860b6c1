// SPDX-License-Identifier: Apache-2.0
// The wavefront coordinator: has each global batch planned, sends the micro-batch tokens to their lanes, keeps a
// bounded number of units announced, gathers figures, commits checkpoints. A thin shell around RunSchedule and
// StepWatch.
//
// CO-1: lanes see tokens and marks in one order, that of RunSchedule.
// CO-2: at most `ahead` training steps are announced beyond the oldest unfinished unit.
// CO-3: a checkpoint is committed only when every trained section has written its part of the same step.
// CO-4: every request of the control service is answered, at the latest when the run has ended.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>

#include "actors/messages/message_types.hpp"
#include "actors/messages/run_actor.hpp"
#include "actors/run/control_messages.hpp"
#include "actors/run/norm_totals.hpp"
#include "actors/run/run_record.hpp"
#include "actors/run/run_schedule.hpp"
#include "actors/run/step_watch.hpp"
#include "actors/services/snapshot_writer.hpp"
#include "runtime/observe/console.hpp"
#include "runtime/observe/progress.hpp"

namespace maestro {

struct CoordinatorOptions {
  const SectionGraph* graph = nullptr;
  RunScheduleOptions schedule;
  std::int64_t ahead = 2;
  std::int64_t global_batch = 1;
  std::uint64_t seed = 1;
  Manifest origin;                    ///< run, data and settings that every checkpoint records
  std::uint64_t epoch_samples = 1;    ///< of the training split
  bool synchronous = false;           ///< a unit is announced when the one before it has ended
  bool measure = false;               ///< plans follow measured times
  bool global_clip = false;           ///< by one norm over all sections, not one for each
  std::int64_t max_left_out = 0;      ///< samples that may be unreadable before the run ends
  std::shared_ptr<RunRecord> record;  ///< shared with the starting thread, which reads it when the run is over
  SnapshotWriter* snapshots = nullptr;
  Console* console = nullptr;
  std::atomic<std::uint64_t>* current_step = nullptr;  ///< the oldest unfinished one; may be absent
  std::atomic<std::uint64_t>* events = nullptr;        ///< moved by every message that is progress; may be absent
  caf::actor data_source;
  caf::actor planner;
  caf::actor supervisor;
};

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
    std::size_t replicas_done = 0;
    std::map<SectionId, std::size_t> section_done;
    std::map<SectionId, MetricTotals> totals;
    std::map<SectionId, std::pair<double, double>> norm_and_lr;
    std::vector<SampleRef> samples;
    StepWatch watch;
    std::vector<FileRecord> files;  // of a checkpoint
    std::size_t parts = 0;
    std::string staging;
  };
  using Key = std::pair<std::uint64_t, RunUnit::Kind>;
  /// The handler of a message that is progress of the run (CoordinatorOptions::events).
  template <class Message>
  [[nodiscard]] auto progress(void (Coordinator::*handle)(const Message&)) {
    return [this, handle](const Message& message) {
      if (options_.events != nullptr) options_.events->fetch_add(1, std::memory_order_relaxed);
      (this->*handle)(message);
    };
  }
  void begin(const Begin& begin);
  void committed(const CheckpointCommitted& committed);
  void connect(const Directory& directory);
  void announce();
  void plan(const BatchMetadata& batch);
  bool leave_out(const BatchMetadata& batch);
  /// False, and the run fails, at the batch by which every training sample was met, or as many as there are steps for,
  /// and all of them were left out.
  bool trains_something(const BatchMetadata& batch);
  void announce_step(const StepPlanned& planned);
  void open_phase(const StepWatch::Opening& opening);
  void phase_pass_done(const PhasePassDone& message);
  void announce_checkpoint(StepId step);
  void send_end_marks(const Open& open, Pass pass);
  void send_marks(const StepBoundary& mark);
  void micro_batch_done(const MicroBatchDone& message);
  void step_done(const StepDone& message);
  void section_finished(Open& open, SectionId section);
  void norm_reported(const NormReport& report);
  void snapshot_written(const SnapshotWritten& written);
  void commit(Open& open);
  void close(Key key);
  void finish_if_done();
  void report_progress(StepId step);
  // What the control service asks for; coordinator_control.cpp.
  [[nodiscard]] RunState state() const;
  [[nodiscard]] StepId last_step() const;
  [[nodiscard]] RunStatus status() const;
  [[nodiscard]] double recent_samples_per_s() const;
  [[nodiscard]] MetricsRows metrics(const MetricsRequest& request) const;
  caf::result<CheckpointAnswer> checkpoint_asked();
  void checkpoint_committed(const CheckpointCommitted& committed);
  caf::result<PauseAnswer> pause_asked(const PauseRequest& request);
  void resume();
  void answer_pauses();
  [[nodiscard]] std::size_t replicas_in_all() const;
  [[nodiscard]] std::size_t trained_sections() const;
  [[nodiscard]] SectionId watched_section() const;

  CoordinatorOptions options_;
  RunSchedule schedule_;
  std::map<SectionId, std::vector<caf::actor>> replicas_;
  std::map<Key, Open> open_;
  bool awaiting_batch_ = false;
  bool any_kept_ = false;  // of the training samples met so far
  bool finished_ = false;
  NormTotals norms_;
  std::vector<MeasuredPass> measured_;  // since the last plan was asked for
  std::map<SectionId, std::chrono::steady_clock::time_point> last_step_end_;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point unit_started_;
  ProgressMeter meter_;
  double loss_ = 0;
  bool began_ = false;
  std::shared_ptr<const Directory> directory_;  // shared with answers to the control service
  std::map<std::string, StepRow> latest_;       // by section
  std::optional<StepId> committed_;             // of RunRecord::checkpoint, when this run wrote it
  std::vector<std::pair<StepId, caf::response_promise>> checkpoints_asked_;
  std::vector<caf::response_promise> pauses_asked_;
};

}  // namespace maestro
