// SPDX-License-Identifier: Apache-2.0
// `maestro samples RUN --step K`: the samples that a step of a run was trained on.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>

#include "apps/maestro/plug_in_option.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

/// Opens the data of the run's job again and draws the step's samples, which are those of the run if their digest is
/// that of the record.
class SamplesCommand {
 public:
  explicit SamplesCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError: no record, no such step, other data than the run's.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  std::filesystem::path run_;
  std::uint64_t step_ = 0;
  bool text_ = false;
  PlugInChoice plug_ins_;
};

}  // namespace maestro
