// SPDX-License-Identifier: Apache-2.0
// Progress of a run as recorded by the coordinator: rows for the report, counts, validation. Pure.
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
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

struct MetricTotals {
  /// name -> (sum, weight) by micro-batch index.
  std::map<std::string, std::map<std::uint32_t, std::pair<double, double>>> values;
  void add(std::uint32_t index, const std::string& name, double sum, double weight) {
    values[name][index] = {sum, weight};
  }
  /// sum / weight of each metric; metrics without weight are left out.
  [[nodiscard]] std::map<std::string, double> means() const;
};

/// Times of a training step, with their lower bound.
struct SchedulingRow {
  StepId step;
  double begin_ms = 0;        ///< of the step's first pass, since the run began
  double makespan_ms = 0;     ///< from the begin of the step's first pass to the end of its last pass
  double lower_bound_ms = 0;  ///< of any schedule, with the measured times
  double planned_ms = 0;      ///< makespan of the plan, with its estimated times: no time between steps
  double planning_ms = 0;
  std::map<std::string, double> utilization;  ///< by section: share of the makespan in which its lanes were busy
  std::map<std::string, double> planned_utilization;  ///< likewise of that makespan
};

/// Number of distinct samples read: a bit for each, as their ids are dense.
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

/// The loss of a process after which the run goes on.
struct Recovery {
  std::string cause;                            ///< a line
  std::chrono::steady_clock::time_point begun;  ///< when the loss was reported
  bool rollback = false;                        ///< no loss: the guard went back
  bool in_place = false;                        ///< placements have moved; nothing that is trained went back
  std::uint64_t after_step = 0;                 ///< the step that the run goes on after; not in place
  std::uint64_t repeated = 0;                   ///< finished steps that are done again; in place: micro-batches
  double seconds = 0;                           ///< from the report to the next pass; 0: not there yet
};

/// Returns "went on after step 8 within 1.3 s; 3 steps were done again", or "went on in place within 0.02 s; 2
/// micro-batches were done again"; something else after a further loss before the next pass.
[[nodiscard]] std::string text_of(const Recovery& recovery);

/// Returns the cause and text_of().
[[nodiscard]] std::string line_of(const Recovery& recovery);

struct RunRecord {
  RecentRows<StepRow> steps;                                 ///< of finished steps
  std::map<std::uint64_t, std::vector<StepRow>> unfinished;  ///< rows of steps that other sections have not ended
  RecentRows<SchedulingRow> scheduling;                      ///< of finished steps
  std::optional<PlanDrift> drift;                            ///< from [plan]; none: not compared yet
  std::map<std::string, std::map<std::string, double>> validation;  ///< of the last validation, by section
  RecentRows<StepRow> validations;                                  ///< all validations
  SampleCounts counts;                                              ///< by step
  std::map<std::string, double> losses;                             ///< of each section's last step
  DistinctSamples distinct;
  std::vector<std::string> left_out;                           ///< samples that could not be read, with the reason
  std::optional<std::chrono::steady_clock::time_point> began;  ///< the first pass
  double train_seconds = 0;
  std::uint64_t resumed_from = 0;
  std::uint64_t last_step = 0;
  std::string checkpoint;  ///< path of the last checkpoint
  std::string newest;      ///< path of the last checkpoint, also one in memory: a recovery goes on from it
  /// What is left of the step that `newest` is of, if it was made after the loss of a process (CR-6).
  std::optional<std::vector<RunUnit>> owed;
  bool interrupted = false;
  std::optional<std::uint64_t> pause_after;  ///< the run stands still after this step until a resume
  std::vector<Recovery> recoveries;
  std::optional<Rollback> rollback;  ///< for which the run has ended

  /// Keeps the last rows alone from now on, since files have all of them.
  void keep_recent_rows();
  /// Sums of all steps; tokens of finished steps only.
  [[nodiscard]] StepCounts totals() const { return counts.totals(last_step); }
  /// Removes all that was recorded of steps after `step`, since they are done again, but for what sections have trained
  /// up to their step in `ahead`; `counted`: the section whose trained samples are counted. Seconds stay: they have
  /// passed.
  void go_back(std::uint64_t step, const std::map<std::string, std::uint64_t>& ahead = {},
               const std::string& counted = {});
};

}  // namespace maestro
