// The sub-commands of the maestro program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "actors/job_plan.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

struct TrainArguments {
  std::filesystem::path job;
  std::vector<std::string> overrides;  ///< "a.b=c"
  RunOptions run;
};

struct DistillArguments {
  std::string data;  ///< empty: the repository's own text
  std::filesystem::path out = "runs";
  std::int64_t seed = 1;
  std::vector<std::string> teacher_overrides;
  std::vector<std::string> overrides;  ///< of the distillation job
  RunOptions run;
};

/// Runs, or with check_only validates, the job file with the app it names. Throws JobError.
RunResult train(const TrainArguments& arguments, Console& console);

/// Teacher, student and plain student, end to end, and the table that compares them. Returns the exit status.
int distill(const DistillArguments& arguments, Console& console);

/// The folder of the bundled job files: of the repository, or of the installation this program belongs to.
std::filesystem::path bundled_jobs();

}  // namespace maestro
