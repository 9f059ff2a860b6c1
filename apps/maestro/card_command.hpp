// SPDX-License-Identifier: Apache-2.0
// `maestro card RUN`: the card of a run, card.md and card.html.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/maestro/card_files.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

/// Writes the card of a run that has finished, failed, was interrupted, or is under way.
class CardCommand {
 public:
  explicit CardCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError: no record, a file that cannot be written.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  std::filesystem::path run_;
  CardOptions options_;
};

}  // namespace maestro
