// SPDX-License-Identifier: Apache-2.0
// Trains a job file, for `maestro train` and for commands that bring a job.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "actors/process/app.hpp"
#include "actors/run/record/run_result.hpp"
#include "apps/maestro/run/plug_in_option.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

struct TrainArguments {
  std::filesystem::path job;
  std::vector<std::string> overrides;  ///< "a.b=c"
  PlugInChoice plug_ins;
  RunOptions run;
};

/// Returns the composed app of the job file. Throws JobError.
[[nodiscard]] App app_of(const TrainArguments& arguments, Console& console);

/// Runs, or with check_only validates, the job file with its app. Throws JobError.
RunResult train(const TrainArguments& arguments, Console& console);

/// Returns train.out of the job, the folder of its default files. Throws JobError.
[[nodiscard]] std::filesystem::path output_folder(const TrainArguments& arguments);

}  // namespace maestro
