// SPDX-License-Identifier: Apache-2.0
// `maestro emulate WORKLOAD`: a workload file on emulated devices.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>

#include "actors/plan/job_plan.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

struct EmulateArguments {
  std::filesystem::path workload;  ///< JSON, see docs/workloads.md
  std::string policy = "wavefront";
  std::int64_t steps = 10;
  std::int64_t columns = 64;  ///< floats that a sample sends over an edge
  std::int64_t evaluations = 64;
  RunOptions run;
};

/// Runs a workload file on emulated devices, with real actors, messages and transfers, and notes how far its
/// utilisation is from the plan's as a JSON object.
class EmulateCommand {
 public:
  explicit EmulateCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  EmulateArguments arguments_;
};

}  // namespace maestro
