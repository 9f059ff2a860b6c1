// SPDX-License-Identifier: Apache-2.0
// Records finished work: rows of sections and steps in RunRecord, journal and figures, recoveries, and the console's
// lines on progress and validation. Owns the begin times of the rows and each section's last row. Coordinator's thread
// only.
#pragma once

#include <chrono>

#include "actors/run/coordinator/control_messages.hpp"
#include "actors/run/coordinator/coordinator_options.hpp"
#include "actors/run/coordinator/open_unit.hpp"
#include "runtime/observe/progress.hpp"

namespace maestro {

/// Returns the section whose loss and samples represent the run: the first that computes a loss.
[[nodiscard]] SectionId watched_section(const SectionGraph& graph);

class StepRecorder {
 public:
  using Clock = std::chrono::steady_clock;
  /// The options outlive it.
  explicit StepRecorder(const CoordinatorOptions& options);

  /// Starts the clocks. If the run continues after a loss or a rollback, records the recovery.
  void begin();
  /// Measures times from now on: steps do not include a pause.
  void restart_clocks();

  void batch_requested() { batch_requested_ = Clock::now(); }
  /// Returns the time since the batch was requested, or since the end of the last step or validation if that was later.
  [[nodiscard]] double batch_wait_ms() const;
  void step_announced(const OpenUnit& step);
  void micro_batch_done(OpenUnit& open, const MicroBatchDone& message);
  /// Records the figures of a section after all of its replicas have ended the unit.
  void section_ended(OpenUnit& open, SectionId section, const std::vector<Metric>& figures);
  /// Records that a training step has ended. Returns its rows, by section.
  std::vector<StepRow> step_ended(const OpenUnit& step, Clock::time_point end);
  /// Writes the step to the journal and the figures; moves its samples and lane reports out of `step`.
  void keep_step(OpenUnit& step, std::vector<StepRow> rows, Clock::time_point end);
  void unit_ended(const OpenUnit& open, Clock::time_point end);

  void placements_lost(const PlacementsLost& loss);
  /// `repeated`: number of micro-batches that are done again.
  void seats_moved(const std::string& reason, std::size_t repeated);

  /// Sets the status fields that come from the record.
  void describe(RunStatus& status) const;

 private:
  void recovered(Recovery& recovery) const;
  void validated(OpenUnit& open, StepRow row);
  /// Returns the means of a section's metrics so far over all its stages.
  [[nodiscard]] std::map<std::string, double> means_of_stages(const OpenUnit& open, const GraphNode& node) const;
  /// Adds the metrics of a stage to the row of the last stage, if that has ended.
  void early_stage_ended(const OpenUnit& open, const GraphNode& node);
  /// Adds the error of gradients that the section's replicas sent encoded, relative to these gradients' norm.
  void add_wire_error(StepRow& row, const OpenUnit& open) const;
  void report_progress(StepId step);
  void print_validation(const OpenUnit& open) const;
  /// Returns the lane times by "section/replica", without the source, which computes nothing.
  [[nodiscard]] std::map<std::string, LaneTimes> lanes_of(const OpenUnit& open) const;
  void keep_measured(OpenUnit& open, double seconds);
  /// Compares the run with the prediction of its job, once.
  void compare_with_plan();
  [[nodiscard]] double recent_samples_per_s() const;

  const CoordinatorOptions* options_;
  std::optional<Clock::time_point> began_;
  Clock::time_point unit_began_;
  Clock::time_point batch_requested_;
  std::vector<Clock::time_point> last_end_;  // end of the last step or validation, by section
  ProgressMeter meter_;
  double loss_ = 0;                        // last loss of the watched section
  std::map<std::string, double> parts_;    // other figures of the watched section's last step
  std::map<std::string, StepRow> latest_;  // last row, by section
};

}  // namespace maestro
