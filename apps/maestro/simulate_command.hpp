// SPDX-License-Identifier: Apache-2.0
// `maestro simulate WORKLOAD`: the plan of a workload file, in virtual time.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/observe/console.hpp"

namespace maestro {

struct SimulateArguments {
  std::filesystem::path workload;  ///< JSON, see docs/workloads.md
  std::string policy = "wavefront";
  std::filesystem::path timeline;  ///< also write the passes here, for Perfetto; empty: no timeline
  double budget_ms = 0;            ///< of planning, by the clock; 0: the policy's own number of tries
  std::int64_t seed = 1;           ///< of the search
};

/// Plans a workload file under a policy, in virtual time, and notes the result as a JSON object.
class SimulateCommand {
 public:
  explicit SimulateCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  SimulateArguments arguments_;
};

}  // namespace maestro
