// SPDX-License-Identifier: Apache-2.0
// The job file of `maestro plan` on this machine and for a cluster.
#pragma once

#include <string>
#include <vector>

#include "apps/maestro/planning/plan_arguments.hpp"
#include "apps/plan/planned_app.hpp"
#include "runtime/job/plan_reader.hpp"

namespace maestro {

/// The text of a job file, with the settings of --set. Arguments outlive it.
class PlannedFile {
 public:
  /// Throws JobError for a file that cannot be read.
  explicit PlannedFile(const PlanArguments& arguments);

  /// Returns the app of the file; this object outlives it. Throws the errors of PlannedApp.
  [[nodiscard]] PlannedApp app(Console& console) const;
  /// Returns the job with the overrides and these settings.
  [[nodiscard]] JobDocument document(const std::vector<std::string>& settings = {}) const;
  /// Writes the job with the chosen keys to PlanArguments::out, if given, below a line of comment.
  void write(const std::vector<std::string>& settings, const PlanConfig& predicted, const std::string& comment,
             Console& console) const;

 private:
  const PlanArguments* arguments_;
  std::string text_;
};

}  // namespace maestro
