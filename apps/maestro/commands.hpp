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

struct SimulateArguments {
  std::filesystem::path workload;  ///< JSON, see docs/workloads.md
  std::string policy = "wavefront";
  std::filesystem::path timeline;  ///< also write the passes here, for Perfetto; empty: do not
  double budget_ms = 0;            ///< of planning, by the clock; 0: as many tries as the policy takes by itself
  std::int64_t seed = 1;           ///< of the search
};

/// Runs, or with check_only validates, the job file with the app it names. Throws JobError.
RunResult train(const TrainArguments& arguments, Console& console);

/// Teacher, student and plain student, end to end, and the table that compares them. Returns the exit status.
int distill(const DistillArguments& arguments, Console& console);

/// Plans a workload file under a policy, in virtual time, and notes the result as one JSON object. Returns the exit
/// status. Throws JobError.
int simulate(const SimulateArguments& arguments, Console& console);

/// The folder of the bundled job files: of the repository, or of the installation this program belongs to.
std::filesystem::path bundled_jobs();

}  // namespace maestro
