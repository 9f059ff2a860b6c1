// SPDX-License-Identifier: Apache-2.0
// `maestro replay RUN --steps A..B`: trains steps of a run again and compares them with its record, bit by bit.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>

#include "apps/maestro/plug_in_option.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

/// Goes on from the last checkpoint before the first of the steps, or begins as the run did, in a folder of its own.
/// The run's folder stays as it is.
class ReplayCommand {
 public:
  explicit ReplayCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status: 0 the same bits, 1 a difference, whose first figure is printed. Throws JobError: no
  /// record, no such steps, nothing to start from, other data than the run's.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  std::filesystem::path run_;
  std::string steps_;
  bool check_ = false;
  std::filesystem::path out_;
  PlugInChoice plug_ins_;
};

}  // namespace maestro
