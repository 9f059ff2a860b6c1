// SPDX-License-Identifier: Apache-2.0
// `maestro help [KEY]`: the reference of job files.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "runtime/observe/console.hpp"

namespace maestro {

/// Prints a key, the keys of a table, or without a name all tables.
class HelpCommand {
 public:
  explicit HelpCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError for an unknown key, with the nearest valid key.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  std::string key_;
  bool markdown_ = false;
};

}  // namespace maestro
