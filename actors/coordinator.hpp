// The wavefront coordinator: turns each global batch into micro-batch tokens for every lane, keeps a bounded number of
// units announced, gathers figures, commits checkpoints. A thin shell around StepPlanner, OrderPolicy and RunSchedule.
//
// CO-1: lanes see tokens and marks in one order, that of RunSchedule.
// CO-2: at most `ahead` training steps are announced beyond the oldest unfinished unit.
// CO-3: a checkpoint is committed only when every trained section has written its part of the same step.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>

#include "actors/messages.hpp"
#include "actors/run_record.hpp"
#include "actors/run_schedule.hpp"
#include "actors/snapshot_writer.hpp"
#include "runtime/observe/console.hpp"
#include "runtime/observe/progress.hpp"
#include "runtime/schedule/order_policy.hpp"
#include "runtime/schedule/step_planner.hpp"

namespace maestro {

struct CoordinatorOptions {
  const SectionGraph* graph = nullptr;
  RunScheduleOptions schedule;
  std::int64_t ahead = 2;
  std::int64_t global_batch = 1;
  std::uint64_t seed = 1;
  std::uint64_t epoch_samples = 1;  ///< of the training split
  std::shared_ptr<OrderPolicy> policy;
  LaneModel lanes;
  std::shared_ptr<RunRecord> record;  ///< shared with the starting thread, which reads it when the run is over
  SnapshotWriter* snapshots = nullptr;
  Console* console = nullptr;
  std::atomic<std::uint64_t>* current_step = nullptr;  ///< the oldest unfinished one; may be absent
  caf::actor data_source;
  caf::actor supervisor;
};

class Coordinator : public caf::event_based_actor {
 public:
  Coordinator(caf::actor_config& config, CoordinatorOptions options);
  caf::behavior make_behavior() override;
  const char* name() const override { return "maestro.coordinator"; }
  void on_exit() override;

 private:
  struct Open {
    RunUnit unit;
    std::size_t replicas_done = 0;
    std::map<SectionId, std::size_t> section_done;
    std::map<SectionId, MetricTotals> totals;
    std::map<SectionId, std::pair<double, double>> norm_and_lr;
    std::vector<SampleRef> samples;
    std::vector<FileRecord> files;  // of a checkpoint
    std::size_t parts = 0;
    std::string staging;
  };
  using Key = std::pair<std::uint64_t, RunUnit::Kind>;
  void connect(const Directory& directory);
  void announce();
  void announce_batch(const BatchMetadata& batch);
  void announce_checkpoint(StepId step);
  void send_marks(const LaneMark& mark);
  void micro_batch_done(const MicroBatchDone& message);
  void step_done(const StepDone& message);
  void section_finished(Open& open, SectionId section);
  void norm_reported(const NormReport& report);
  void snapshot_written(const SnapshotWritten& written);
  void commit(Open& open);
  void close(Key key);
  void finish_if_done();
  void report_progress(StepId step);
  [[nodiscard]] std::size_t replicas_in_all() const;
  [[nodiscard]] std::size_t trained_sections() const;
  [[nodiscard]] SectionId watched_section() const;

  CoordinatorOptions options_;
  StepPlanner planner_;
  RunSchedule schedule_;
  std::map<SectionId, std::vector<caf::actor>> replicas_;
  std::map<Key, Open> open_;
  bool awaiting_batch_ = false;
  bool finished_ = false;
  std::map<std::uint64_t, std::map<SectionId, double>> norms_;
  std::map<SectionId, std::chrono::steady_clock::time_point> last_step_end_;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point unit_started_;
  ProgressMeter meter_;
  double loss_ = 0;
};

}  // namespace maestro
