// SPDX-License-Identifier: Apache-2.0
// `maestro schema` and `maestro completion`: what editors and shells need of this program.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "apps/maestro/plug_in_option.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

/// Prints the JSON schema of job files.
class SchemaCommand {
 public:
  explicit SchemaCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  PlugInChoice plug_ins_;
};

/// Prints a script by which a shell completes commands, options and the keys of `--set` and `help`.
class CompletionCommand {
 public:
  explicit CompletionCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  int run(Console& console) const;

 private:
  const CLI::App& program_;
  CLI::App* command_;  // belongs to the CLI::App
  std::string shell_;
};

}  // namespace maestro
