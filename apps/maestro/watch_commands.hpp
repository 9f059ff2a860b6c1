// SPDX-License-Identifier: Apache-2.0
// `maestro watch` and `maestro metrics`: follow a run in the terminal, by its control service.
#pragma once

#include <CLI/CLI.hpp>

#include "actors/control/control_client.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

class WatchCommands {
 public:
  /// Adds the sub-commands. `app` outlives this.
  explicit WatchCommands(CLI::App& app);
  /// Whether a sub-command of these was given.
  [[nodiscard]] bool given() const { return watch_->parsed() || metrics_->parsed(); }
  /// Runs it to the end of the run, or of standard output. Returns the exit status: 1 when no run answers. Throws
  /// JobError for an invalid address.
  int run(Console& console) const;

 private:
  int watch(Console& console) const;
  int print_metrics(Console& console) const;

  CLI::App* watch_;
  CLI::App* metrics_;
  ControlTarget target_;
  bool follow_ = false;
  bool json_ = false;
};

}  // namespace maestro
