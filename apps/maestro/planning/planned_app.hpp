// SPDX-License-Identifier: Apache-2.0
// The job of `maestro plan` on this machine and for a cluster.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/process/app.hpp"
#include "apps/maestro/planning/plan_arguments.hpp"
#include "apps/plan/job_planner.hpp"

namespace maestro {

/// Composes and resolves a file's job repeatedly, with different settings; opens its corpus once.
class PlannedApp {
 public:
  /// Throws JobError for a file that cannot be read, and for a section that another process computes.
  PlannedApp(const PlanArguments& arguments, Console& console);

  /// Returns the app with these settings after the settings of --set. Throws JobError.
  [[nodiscard]] App app(const std::vector<std::string>& settings, RunOptions options, Console& console) const;
  /// Resolves the app on so many CPU devices (0: any number) without starting it. Throws JobError.
  [[nodiscard]] ResolvedJob resolve(const std::vector<std::string>& settings, std::int64_t cpu_devices);
  /// Returns the job with the overrides and these settings.
  [[nodiscard]] JobDocument document(const std::vector<std::string>& settings = {}) const;
  /// Returns the names of the sections that are composed.
  [[nodiscard]] const std::vector<std::string>& sections() const { return sections_; }
  /// Writes the job with the chosen keys to PlanArguments::out, if given, below a line of comment.
  void write(const std::vector<std::string>& settings, const PlanConfig& predicted, const std::string& comment) const;

 private:
  const PlanArguments& arguments_;
  Console& console_;
  std::string text_;
  std::vector<std::string> sections_;
  std::shared_ptr<const Corpus> corpus_;
};

/// Returns "2 x m4 tensor 2 zero".
[[nodiscard]] std::string layout_text(const SectionLayout& layout);
/// Returns "2 x m4 cpu:0,1", and a share of GPUs: "m8 cuda:0 share 0.25".
[[nodiscard]] std::string placed_text(const RankedLayout& ranked, const std::string& section);
/// Returns a setting with runs of equal list elements joined: "teacher.speed=[7 x 1.000, 16 x 0.329]".
[[nodiscard]] std::string with_runs(const std::string& setting);
/// Returns "+12.3%" or "-1.2%".
[[nodiscard]] std::string signed_percent(double share);

}  // namespace maestro
