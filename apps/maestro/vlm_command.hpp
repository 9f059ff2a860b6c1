// SPDX-License-Identifier: Apache-2.0
// `maestro vlm`: a vision-language model, end to end, and a page about it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "actors/plan/job_plan.hpp"
#include "runtime/observe/console.hpp"

namespace maestro {

struct VisionLanguageArguments {
  std::filesystem::path data;        ///< conversations (JSON); empty: scenes that are drawn
  std::filesystem::path images;      ///< folder of their pictures; empty: "images" beside the file
  std::filesystem::path validation;  ///< conversations for validation; empty: a part of `data`
  std::filesystem::path out = "runs";
  std::int64_t seed = 1;
  std::int64_t shown = 12;  ///< validation pictures on the page
  std::vector<std::string> overrides;
  RunOptions run;
};

/// Draws scenes unless given data, trains a vision-language model on them and writes a page about it.
class VisionLanguageCommand {
 public:
  explicit VisionLanguageCommand(CLI::App& app);

  [[nodiscard]] bool given() const { return command_->parsed(); }
  /// Returns the exit status. Throws JobError.
  int run(Console& console) const;

 private:
  CLI::App* command_;  // belongs to the CLI::App
  VisionLanguageArguments arguments_;
};

}  // namespace maestro
