// SPDX-License-Identifier: Apache-2.0
// The job of `maestro plan` and `maestro profile` on this machine.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/maestro/planning/planned_app.hpp"
#include "apps/plan/job_planner.hpp"
#include "apps/plan/machine_load.hpp"
#include "apps/plan/section_profiler.hpp"

namespace maestro {

/// A job and the prices of its layouts on this machine. Not thread-safe.
class PlannedJob {
 public:
  /// Reads the profile, if there is one. Arguments and console outlive the job. Throws JobError for a profile of
  /// other devices, and the errors of PlannedApp, planned_gpus() and JobPlanner.
  PlannedJob(const PlanArguments& arguments, Console& console);
  PlannedJob(const PlannedJob&) = delete;  // parts refer to each other
  PlannedJob& operator=(const PlannedJob&) = delete;

  /// Measures the calls that lack prices, and writes the profile if it is named. Prints a warning if other processes
  /// load the CPUs that it measures on.
  void measure();
  /// Measures as measure() does, and ranks the layouts.
  [[nodiscard]] LayoutRanking rank();
  [[nodiscard]] JobPlanner& planner() { return *planner_; }
  [[nodiscard]] const ResolvedJob& base() const { return planner_->base(); }
  [[nodiscard]] const PlannedMachine& machine() const { return machine_; }
  /// Returns "distill on 2 CPU devices".
  [[nodiscard]] std::string title() const { return base().name + " on " + machine_.text(); }
  [[nodiscard]] const MachinePrices& prices() const { return prices_; }
  [[nodiscard]] const PlannedApp& app() const { return app_; }
  /// Returns the load of the CPUs before the first measurement; nothing if none was needed, and for GPUs.
  [[nodiscard]] const std::optional<MachineLoad>& load() const { return load_; }

  /// Runs a layout for some steps. Returns the milliseconds of each step after the first two. Throws JobError if it
  /// does not run to its end.
  std::vector<double> run(const std::vector<std::string>& settings, std::int64_t steps,
                          const std::filesystem::path& folder) const;

 private:
  /// Returns a run's CPU devices; 0: one per core.
  [[nodiscard]] std::int64_t cpu_devices() const { return machine_.gpus == nullptr ? machine_.devices : 0; }
  void check_profile() const;
  void check_load();
  [[nodiscard]] ProfilerOptions profiler_options() const;
  /// Writes the profile if the work has measured anything.
  void keep_measured(const std::function<void(const JobPlanner::Progress& progress)>& work);

  const PlanArguments& arguments_;
  Console& console_;
  PlannedMachine machine_;
  MachinePrices prices_;
  PlannedApp app_;
  std::optional<JobPlanner> planner_;
  std::optional<MachineLoad> load_;
};

}  // namespace maestro
