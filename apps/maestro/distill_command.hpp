// SPDX-License-Identifier: Apache-2.0
// `maestro distill`: a student learns from a given teacher, or from a small teacher that is trained first.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "actors/plan/job_plan.hpp"
#include "actors/run/run_result.hpp"
#include "apps/maestro/train_command.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

struct DistillArguments {
  std::string teacher;                ///< folder or name on the hub; empty: a small teacher is trained first
  std::string student;                ///< the same; empty: the bundled shape, from random values
  std::string data;                   ///< empty: the repository's own text
  std::optional<std::int64_t> steps;  ///< of the distillation; absent: the bundled job's
  std::optional<std::int64_t>
      sequence;  ///< tokens of a sample; absent: the bundled job's, or the most that both models take
  std::filesystem::path out = "runs";
  std::vector<std::string> prompts = {"The", "In the", "It is"};  ///< that all models continue at the end
  std::int64_t seed = 1;
  std::vector<std::string> teacher_overrides;
  std::vector<std::string> overrides;  ///< of the distillation job
  RunOptions run;
};

/// Distils a student from a given teacher. Without a teacher: trains a teacher, distils a student from it, and compares
/// both with the same student trained alone.
class DistillCommand {
 public:
  explicit DistillCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  [[nodiscard]] std::vector<std::string> common_settings() const;
  [[nodiscard]] std::vector<std::string> model_settings() const;
  [[nodiscard]] RunResult train_teacher(Console& console) const;
  [[nodiscard]] TrainArguments distillation(const char* job, const std::vector<std::string>& settings) const;
  int distil_given(Console& console) const;
  /// Prints what the teacher and the run's models write behind the prompts.
  void print_texts(const std::string& teacher, const RunResult& run, Console& console) const;
  /// Writes the card of the distillation.
  void print_card(const TrainArguments& job, Console& console) const;
  int distil_trained(Console& console) const;

  CLI::App* command_;  // belongs to the CLI::App
  DistillArguments arguments_;
};

}  // namespace maestro
