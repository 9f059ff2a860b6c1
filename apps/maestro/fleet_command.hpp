// SPDX-License-Identifier: Apache-2.0
// `maestro fleet JOBS CLUSTER`: several jobs on a described cluster, in virtual time.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/observe/console.hpp"

namespace maestro {

struct FleetArguments {
  std::filesystem::path jobs;
  std::filesystem::path cluster;
  std::string policy = "cells";
  bool pack = false;
  std::optional<std::int64_t> seed;  ///< of the arrivals; none: that of the jobs
  bool json = false;
};

/// Simulates the jobs under a policy and prints their figures.
class FleetCommand {
 public:
  explicit FleetCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  FleetArguments arguments_;
};

}  // namespace maestro
