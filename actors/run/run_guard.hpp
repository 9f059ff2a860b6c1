// SPDX-License-Identifier: Apache-2.0
// Watches the losses and gradient norms of all sections of a run for spikes, with a SpikeJudge each. Pure but for
// learn_recorded().
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "actors/run/run_journal.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/config.hpp"
#include "runtime/observe/report.hpp"
#include "runtime/schedule/spike_judge.hpp"

namespace maestro {

struct GuardFinding {
  std::string section;
  SpikeFinding found;
  [[nodiscard]] bool lasts() const;
};

/// Returns a line for the user.
[[nodiscard]] std::string text_of(const GuardFinding& finding);
/// Returns the fields of the event "spike": {"what": "began" | "ended" | "lasts" | "not_finite" | "huge_norm",
/// "section", "step", "began", "value", "usual", "highest"}.
[[nodiscard]] EventFields fields_of(const GuardFinding& finding);

/// Not thread-safe.
class RunGuard {
 public:
  explicit RunGuard(const GuardConfig& config) : config_(config) {}
  /// Judges the rows of a finished training step.
  [[nodiscard]] std::vector<GuardFinding> judge(const std::vector<StepRow>& rows);
  /// Takes the last steps of a record (steps.jsonl) as judged before. Errors name the file.
  Status learn_recorded(const std::filesystem::path& steps);
  [[nodiscard]] const GuardConfig& config() const { return config_; }

 private:
  GuardConfig config_;
  std::map<std::string, SpikeJudge> judges_;  // by section
};

}  // namespace maestro
