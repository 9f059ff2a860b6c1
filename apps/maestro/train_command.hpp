// SPDX-License-Identifier: Apache-2.0
// `maestro train JOB` and `maestro check JOB`.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "actors/plan/job_plan.hpp"
#include "actors/run/run_result.hpp"
#include "apps/maestro/plug_in_option.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

struct TrainArguments {
  std::filesystem::path job;
  std::vector<std::string> overrides;  ///< "a.b=c"
  PlugInChoice plug_ins;
  RunOptions run;
};

/// Runs, or with check_only validates, the job file with its app. Throws JobError.
RunResult train(const TrainArguments& arguments, Console& console);

/// Returns train.out of the job, where its default files go. Throws JobError.
[[nodiscard]] std::filesystem::path output_folder(const TrainArguments& arguments);

/// A command on a job file.
class JobCommand {
 public:
  [[nodiscard]] bool given() const { return command_->parsed(); }

 protected:
  JobCommand(CLI::App& app, const std::string& name, const std::string& help, const std::string& help_of_set);

  CLI::App* command_;  // belongs to the CLI::App
  TrainArguments arguments_;
};

/// Trains the job of a file.
class TrainCommand : public JobCommand {
 public:
  explicit TrainCommand(CLI::App& app);
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;
};

/// Validates a job file without a run.
class CheckCommand : public JobCommand {
 public:
  explicit CheckCommand(CLI::App& app);
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  std::string graph_;  // form of the section graph; empty: it is not printed
};

}  // namespace maestro
