// SPDX-License-Identifier: Apache-2.0
// `maestro sections [NAME]`: the section types that job files may name.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/maestro/plug_in_option.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

/// Prints all types, or the ports and keys of a type.
class SectionsCommand {
 public:
  explicit SectionsCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError for an unknown type, with the nearest.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  std::string type_;
  PlugInChoice plug_ins_;
};

}  // namespace maestro
