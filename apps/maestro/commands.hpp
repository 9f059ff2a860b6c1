// SPDX-License-Identifier: Apache-2.0
// The sub-commands of the maestro program.
#pragma once

#include <cstdint>
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

struct DistillArguments {
  std::string data;  ///< empty: the repository's own text
  std::filesystem::path out = "runs";
  std::int64_t seed = 1;
  std::vector<std::string> teacher_overrides;
  std::vector<std::string> overrides;  ///< of the distillation job
  RunOptions run;
};

struct VisionLanguageArguments {
  std::filesystem::path data;        ///< conversations (JSON); empty: scenes that are drawn
  std::filesystem::path images;      ///< folder of their pictures; empty: "images" beside the file
  std::filesystem::path validation;  ///< conversations for validation; empty: a part of `data`
  std::filesystem::path out = "runs";
  std::int64_t seed = 1;
  std::int64_t shown = 12;  ///< validation pictures on the page
  std::vector<std::string> overrides;
  RunOptions run;
};

struct SimulateArguments {
  std::filesystem::path workload;  ///< JSON, see docs/workloads.md
  std::string policy = "wavefront";
  std::filesystem::path timeline;  ///< also write the passes here, for Perfetto; empty: do not
  double budget_ms = 0;            ///< of planning, by the clock; 0: as many tries as the policy takes by itself
  std::int64_t seed = 1;           ///< of the search
};

struct EmulateArguments {
  std::filesystem::path workload;  ///< JSON, see docs/workloads.md
  std::string policy = "wavefront";
  std::int64_t steps = 10;
  std::int64_t columns = 64;  ///< floats that a sample sends over an edge
  std::int64_t evaluations = 64;
  RunOptions run;
};

/// Runs, or with check_only validates, the job file with the app it names. Throws JobError.
RunResult train(const TrainArguments& arguments, Console& console);

/// Teacher, student and plain student, end to end, and the table that compares them. Returns the exit status.
int distill(const DistillArguments& arguments, Console& console);

/// Draws scenes unless given data, trains a vision-language model on them and writes a page about it. Returns the exit
/// status. Throws JobError.
int vision_language(const VisionLanguageArguments& arguments, Console& console);

/// Plans a workload file under a policy, in virtual time, and notes the result as one JSON object. Returns the exit
/// status. Throws JobError.
int simulate(const SimulateArguments& arguments, Console& console);

/// Runs a workload file on emulated devices, with real actors, messages and transfers, and notes how far its
/// utilisation is from the plan's as one JSON object. Returns the exit status. Throws JobError.
int emulate(const EmulateArguments& arguments, Console& console);

/// A string as a TOML value, for --set.
std::string quoted(const std::string& text);

/// The folder of the bundled job files: of the repository, or of the installation this program belongs to.
std::filesystem::path bundled_jobs();

}  // namespace maestro
