// SPDX-License-Identifier: Apache-2.0
// `maestro export CHECKPOINT[/SECTION] --to DIR`: a section's model for other programs.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "runtime/observe/console.hpp"

namespace maestro {

/// Writes a complete Hugging Face folder, or one of PEFT, out of a checkpoint (export_section).
class ExportCommand {
 public:
  explicit ExportCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  std::filesystem::path from_;
  std::filesystem::path to_;
  std::string dtype_;
  bool merge_ = false;
  double shard_gb_ = 5;
};

}  // namespace maestro
