// SPDX-License-Identifier: Apache-2.0
// `maestro train JOB` and `maestro check JOB`.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "actors/plan/job_plan.hpp"
#include "actors/run/run_result.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

struct TrainArguments {
  std::filesystem::path job;
  std::vector<std::string> overrides;  ///< "a.b=c"
  RunOptions run;
};

/// Runs, or with check_only validates, the job file with its app. Throws JobError.
RunResult train(const TrainArguments& arguments, Console& console);

/// Trains the job of a file.
class TrainCommand {
 public:
  explicit TrainCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  TrainArguments arguments_;
};

/// Validates a job file without a run.
class CheckCommand {
 public:
  explicit CheckCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  TrainArguments arguments_;
};

}  // namespace maestro
