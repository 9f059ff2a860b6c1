// SPDX-License-Identifier: Apache-2.0
// Scripts by which shells complete the words of a program. Pure.
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
  std::vector<std::string> keys;  ///< of job files: behind --set, and behind the command `help`
};

/// Files complete everything else. `shell`: "bash", "zsh" or "fish".
[[nodiscard]] std::string completion_script(const CompletedProgram& program, const std::string& shell);

}  // namespace maestro
