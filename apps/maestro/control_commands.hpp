// SPDX-License-Identifier: Apache-2.0
// `maestro status`, `plan`, `checkpoint`, `pause`, `resume`, `stop` and `leave`: clients of a run's control service.
#pragma once

#include <CLI/CLI.hpp>
#include <deque>
#include <string>

#include "actors/control/control_client.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

class ControlCommands {
 public:
  /// Adds the sub-commands. `app` outlives this.
  explicit ControlCommands(CLI::App& app);
  /// Whether a sub-command of these was given.
  [[nodiscard]] bool given() const;
  /// Makes the call and notes the answer. Returns the exit status: 1 when no run answers or the run refuses. Throws
  /// JobError for an invalid address.
  int run(Console& console) const;

 private:
  struct Command {
    CLI::App* app = nullptr;
    std::string name;
    ControlTarget target;
    std::int32_t process = 0;  // of `leave`
    bool json = false;
  };
  std::deque<Command> commands_;  // options hold references into it
};

}  // namespace maestro
