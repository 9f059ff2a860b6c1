// SPDX-License-Identifier: Apache-2.0
// The job of `maestro plan` and `maestro profile` on this machine.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/maestro/planning/planned_app.hpp"
#include "apps/plan/job_planner.hpp"
#include "apps/plan/section_profiler.hpp"

namespace maestro {

/// A job and the prices of its layouts on this machine. Not thread-safe.
class PlannedJob {
 public:
  /// Reads the profile, where there is one. Arguments and console outlive the job. Throws JobError for a profile of
  /// other devices, and the errors of PlannedApp, planned_gpus() and JobPlanner.
  PlannedJob(const PlanArguments& arguments, Console& console);
  PlannedJob(const PlannedJob&) = delete;  // parts refer to each other
  PlannedJob& operator=(const PlannedJob&) = delete;

  /// Measures the calls that have no price yet, and writes the profile where one is named.
  void measure();
  /// Measures likewise, and ranks the layouts.
  [[nodiscard]] LayoutRanking rank();
  [[nodiscard]] JobPlanner& planner() { return *planner_; }
  [[nodiscard]] const ResolvedJob& base() const { return planner_->base(); }
  [[nodiscard]] const PlannedMachine& machine() const { return machine_; }
  /// Returns "distill on 2 processors".
  [[nodiscard]] std::string title() const { return base().name + " on " + machine_.text(); }
  [[nodiscard]] const MachinePrices& prices() const { return prices_; }
  [[nodiscard]] const PlannedApp& app() const { return app_; }

  /// Runs a layout for some steps. Returns the milliseconds of each behind the first two. Throws JobError where it does
  /// not run to the end.
  std::vector<double> run(const std::vector<std::string>& settings, std::int64_t steps,
                          const std::filesystem::path& folder) const;

 private:
  /// Returns the processor devices of a run; 0: the cores.
  [[nodiscard]] std::int64_t cpu_devices() const { return machine_.gpus == nullptr ? machine_.devices : 0; }
  void check_profile() const;
  [[nodiscard]] ProfilerOptions profiler_options() const;
  /// Writes the profile if the work has measured anything.
  void keep_measured(const std::function<void(const JobPlanner::Progress& progress)>& work);

  const PlanArguments& arguments_;
  Console& console_;
  PlannedMachine machine_;
  MachinePrices prices_;
  PlannedApp app_;
  std::optional<JobPlanner> planner_;
};

}  // namespace maestro
