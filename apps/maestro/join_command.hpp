// SPDX-License-Identifier: Apache-2.0
// `maestro join`: this process becomes part of a running job and takes replicas of a section over.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "actors/control/control_client.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

class JoinCommand {
 public:
  /// Adds the sub-command. `app` outlives this.
  explicit JoinCommand(CLI::App& app);
  [[nodiscard]] bool given() const { return app_->parsed(); }
  /// Executes this program as a process of the run. Returns only if no run answers or the run refuses: the exit status.
  /// Throws JobError for an invalid address.
  int run(Console& console) const;

 private:
  CLI::App* app_;
  ControlTarget target_;
  std::string section_;
  std::string devices_;
  std::string log_format_;
};

}  // namespace maestro
