// SPDX-License-Identifier: Apache-2.0
// Scripts that let shells complete a program's words. Pure.
#pragma once

#include <string>
#include <vector>

namespace maestro {

struct CompletedOption {
  std::string name;  ///< "--step"
  std::string help;
  bool takes_value = false;
};
struct CompletedCommand {
  std::string name;
  std::string help;
  std::vector<CompletedOption> options;
};
struct CompletedProgram {
  std::string name;
  std::vector<CompletedCommand> commands;
  std::vector<std::string> keys;  ///< keys of job files, completed after --set and after the command `help`
};

/// Returns the script; all other words are completed as files. `shell`: "bash", "zsh" or "fish".
[[nodiscard]] std::string completion_script(const CompletedProgram& program, const std::string& shell);

}  // namespace maestro
