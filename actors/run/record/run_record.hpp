// SPDX-License-Identifier: Apache-2.0
// Progress of a run, recorded by the coordinator: rows for the report, counts, validation. Pure.
//
// RC-1 (order of sums): sums over micro-batches are formed in micro-batch order, so metrics are equal under every
//       placement.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/run/coordinator/plan_drift.hpp"
#include "actors/run/coordinator/rollback.hpp"
#include "actors/run/coordinator/run_schedule.hpp"
#include "actors/run/coordinator/sample_counts.hpp"
#include "actors/run/record/recent_rows.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/observe/report.hpp"
#include "runtime/observe/step_times.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

struct MetricTotals {
  /// (sum, weight) by metric name and micro-batch index.
  std::map<std::string, std::map<std::uint32_t, std::pair<double, double>>> values;
  void add(std::uint32_t index, const std::string& name, double sum, double weight) {
    values[name][index] = {sum, weight};
  }
  /// Adds the metrics of another stage of the section, micro-batch by micro-batch.
  void add(const MetricTotals& stage);
  /// Returns sum / weight of each metric, without metrics whose weight is 0.
  [[nodiscard]] std::map<std::string, double> means() const;
};

/// Times of a training step, with their lower bound.
struct SchedulingRow {
  StepId step;
  double begin_ms = 0;        ///< begin of the step's first pass, since the run began
  double step_ms = 0;         ///< from the end of the unit before, without pauses, to the end of the step
  double makespan_ms = 0;     ///< from the begin of the step's first pass to the end of its last pass
  double lower_bound_ms = 0;  ///< least makespan of any schedule, with the measured times
  double planned_ms = 0;      ///< makespan of the plan, with estimated times, without time between steps
  double planning_ms = 0;
  std::map<std::string, double> utilization;          ///< share of the step's passes in makespan_ms, by section
  std::map<std::string, double> planned_utilization;  ///< the same for the plan and planned_ms
};

/// Counts distinct samples with a bit each, as their ids are dense.
class DistinctSamples {
 public:
  void insert(SampleId sample) {
    if (seen_.size() <= sample.value()) seen_.resize(sample.value() + 1);
    if (!seen_[sample.value()]) ++count_;
    seen_[sample.value()] = true;
  }
  [[nodiscard]] std::uint64_t size() const { return count_; }

 private:
  std::vector<bool> seen_;  // by SampleId
  std::uint64_t count_ = 0;
};

/// The loss of a process after which the run continues.
struct Recovery {
  std::string cause;                            ///< a line
  std::chrono::steady_clock::time_point begun;  ///< when the loss was reported
  bool rollback = false;                        ///< a rollback of the guard, without a lost process
  bool in_place = false;                        ///< placements have moved; trained sections kept their state
  std::uint64_t after_step = 0;                 ///< step after which the run continues; 0 if in place
  std::uint64_t repeated = 0;                   ///< finished steps that are done again; in place: micro-batches
  double seconds = 0;                           ///< time from the report to the next pass; 0: no pass yet
};

/// Returns "went on after step 8 within 1.3 s; 3 steps were done again", or "went on in place within 0.02 s; 2
/// micro-batches were done again"; another text if a further loss came before the next pass.
[[nodiscard]] std::string text_of(const Recovery& recovery);

/// Returns the cause and text_of().
[[nodiscard]] std::string line_of(const Recovery& recovery);

struct RunRecord {
  RecentRows<StepRow> steps;                                 ///< rows of finished steps
  std::map<std::uint64_t, std::vector<StepRow>> unfinished;  ///< rows of steps that other sections have not ended
  RecentRows<SchedulingRow> scheduling;                      ///< rows of finished steps
  std::optional<PlanDrift> drift;                            ///< difference from [plan]; none: not compared yet
  std::map<std::string, std::map<std::string, double>> validation;  ///< last validation's metrics, by section
  RecentRows<StepRow> validations;                                  ///< rows of all validations
  SampleCounts counts;                                              ///< counts by step
  std::map<std::string, double> losses;                             ///< last loss of each section
  StepRow made;  ///< row of the last step with made samples; without a section: there was none
  DistinctSamples distinct;
  std::vector<std::string> left_out;                           ///< samples that could not be read, with the reason
  std::optional<std::chrono::steady_clock::time_point> began;  ///< when the first pass began
  double train_seconds = 0;
  std::uint64_t resumed_from = 0;
  std::uint64_t last_step = 0;
  std::string checkpoint;  ///< path of the last checkpoint
  std::string newest;      ///< path of the last checkpoint on disk or in memory, for a recovery
  /// Units left of the step of `newest`, if that was made after the loss of a process (CR-6).
  std::optional<std::vector<RunUnit>> owed;
  bool interrupted = false;
  std::optional<std::uint64_t> pause_after;  ///< the run is paused after this step until a resume
  std::vector<Recovery> recoveries;
  std::optional<Rollback> rollback;  ///< rollback for which the run has ended

  /// Returns the time of a step over the last steps (StepTimes).
  [[nodiscard]] std::optional<SteadyStep> steady_step() const;
  /// Keeps only the last rows from now on, since files have all of them.
  void keep_recent_rows();
  /// Returns the sums over all steps; tokens only over finished steps.
  [[nodiscard]] StepSamples totals() const { return counts.totals(last_step); }
  /// Removes the records of steps after `step`, which are done again. Sections in `ahead` keep their records up
  /// to their step there. `counted`: the section whose trained samples are counted. Elapsed seconds are kept.
  void go_back(std::uint64_t step, const std::map<std::string, std::uint64_t>& ahead = {},
               const std::string& counted = {});
};

}  // namespace maestro
