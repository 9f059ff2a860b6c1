// SPDX-License-Identifier: Apache-2.0
// An app that is planned on this machine: for `maestro plan`, `maestro profile` and apps in Python.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/plan/job_planner.hpp"
#include "apps/plan/machine_load.hpp"
#include "apps/plan/planned_app.hpp"
#include "apps/plan/ranking_text.hpp"
#include "apps/plan/section_profiler.hpp"

namespace maestro {

struct PlannedJobOptions {
  std::vector<std::string> varied;  ///< keys that are chosen even if the job gives them
  std::filesystem::path profile;    ///< prices that are read, and written with new measurements; empty: none
  std::int64_t cpu_devices = 0;     ///< 0: one per core
  std::int64_t gpus = 0;            ///< 0: all, unless CPUs are meant or there are none
  std::int64_t measure_ms = 60;     ///< least time for each layout of a section
  std::int64_t top = 5;             ///< layouts in the table
  std::int64_t tries = 0;           ///< layouts that are also run
  std::int64_t steps = 20;          ///< steps of each trial run
  std::filesystem::path lengths;    ///< run whose made samples have the lengths to plan with; empty: the limit
};

/// A job and the prices of its layouts on this machine. Not thread-safe.
class PlannedJob {
 public:
  /// Reads the profile, if there is one. The console outlives the job. Throws JobError for a profile of other devices,
  /// and the errors of planned_gpus() and JobPlanner.
  PlannedJob(PlannedApp app, PlannedJobOptions options, Console& console);
  PlannedJob(const PlannedJob&) = delete;  // parts refer to each other
  PlannedJob& operator=(const PlannedJob&) = delete;

  /// Measures the calls that lack prices, and writes the profile if it is named. Prints a warning if other processes
  /// load the CPUs that it measures on.
  void measure();
  /// Measures as measure() does, ranks the layouts, and runs the best in turn, as many as the options say.
  [[nodiscard]] RankingReport report();
  [[nodiscard]] JobPlanner& planner() { return *planner_; }
  [[nodiscard]] const ResolvedJob& base() const { return planner_->base(); }
  [[nodiscard]] const PlannedMachine& machine() const { return machine_; }
  /// Returns "distill on 2 CPU devices".
  [[nodiscard]] std::string title() const { return base().name + " on " + machine_.text(); }
  [[nodiscard]] const MachinePrices& prices() const { return prices_; }
  /// Returns the load of the CPUs before the first measurement; nothing if none was needed, and for GPUs.
  [[nodiscard]] const std::optional<MachineLoad>& load() const { return load_; }

 private:
  [[nodiscard]] LayoutRanking rank();
  /// Runs a layout for some steps. Returns the milliseconds of each step after the first two. Throws JobError if it
  /// does not run to its end.
  [[nodiscard]] std::vector<double> run(const std::vector<std::string>& settings,
                                        const std::filesystem::path& folder) const;
  [[nodiscard]] TriedLayouts try_best(const std::vector<RankedLayout>& best) const;
  /// Returns a run's CPU devices; 0: one per core.
  [[nodiscard]] std::int64_t cpu_devices() const { return machine_.gpus == nullptr ? machine_.devices : 0; }
  void check_profile() const;
  void check_load();
  void warn_if_disturbed(const SectionProfiler& profiler) const;
  [[nodiscard]] ProfilerOptions profiler_options() const;
  /// Writes the profile if the work has measured anything.
  void keep_measured(const std::function<void(const JobPlanner::Progress& progress)>& work);

  PlannedJobOptions options_;
  Console* console_;
  PlannedMachine machine_;
  MachinePrices prices_;
  PlannedApp app_;
  std::optional<JobPlanner> planner_;
  std::optional<MachineLoad> load_;
};

/// Returns the layout of a report to choose: the fastest that was tried, else the best.
[[nodiscard]] const RankedLayout& chosen_layout(const RankingReport& report);

/// Returns the prediction for the table [plan].
[[nodiscard]] PlanConfig prediction_of(const RankedLayout& layout);

}  // namespace maestro
