// SPDX-License-Identifier: Apache-2.0
// `maestro distill`: teacher, student and plain student, end to end, and a table that compares them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "actors/plan/job_plan.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

struct DistillArguments {
  std::string data;  ///< empty: the repository's own text
  std::filesystem::path out = "runs";
  std::int64_t seed = 1;
  std::vector<std::string> teacher_overrides;
  std::vector<std::string> overrides;  ///< of the distillation job
  RunOptions run;
};

/// Trains a teacher, distils a student from it, and compares both with the same student trained alone.
class DistillCommand {
 public:
  explicit DistillCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  DistillArguments arguments_;
};

}  // namespace maestro
