// SPDX-License-Identifier: Apache-2.0
// `maestro help [KEY]`: the reference of job files.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/maestro/job_reference.hpp"
#include "apps/maestro/plug_in_option.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

/// Returns the keys of a group with their defaults and meanings, a line each, below its heading.
[[nodiscard]] std::string group_text(const KeyGroup& group);

/// Prints a key, the keys of a table, or without a name all tables.
class HelpCommand {
 public:
  explicit HelpCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError for an unknown key, with the nearest valid key.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  PlugInChoice plug_ins_;
  std::string key_;
  bool markdown_ = false;
};

}  // namespace maestro
