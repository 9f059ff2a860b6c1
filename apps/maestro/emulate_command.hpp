// SPDX-License-Identifier: Apache-2.0
// `maestro emulate WORKLOAD`: a workload file on emulated devices.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "actors/process/app.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

struct EmulateArguments {
  std::filesystem::path workload;  ///< JSON, see docs/workloads.md
  std::string policy = "wavefront";
  std::int64_t steps = 10;
  std::int64_t columns = 64;  ///< floats that a sample sends over an edge
  std::int64_t evaluations = 64;
  std::vector<std::string> overrides;  ///< of the job that the workload becomes: "vision.replicas=7"
  bool rehearse = false;               ///< in virtual time, without actors
  std::vector<std::string> free;       ///< sections whose passes take no time there
  std::vector<std::string> constants;  ///< "teacher=40": milliseconds of every pass there, beside those of its samples
  RunOptions run;
};

/// Runs a workload file on emulated devices, with real actors, messages and transfers, and notes how far its
/// utilisation is from the plan's as a JSON object; or rehearses it, and notes how long its steps take.
class EmulateCommand {
 public:
  explicit EmulateCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  [[nodiscard]] int rehearse(App app, Console& console) const;
  CLI::App* command_;  // belongs to the CLI::App
  EmulateArguments arguments_;
};

}  // namespace maestro
