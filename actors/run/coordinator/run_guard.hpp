// SPDX-License-Identifier: Apache-2.0
// Watches the losses and gradient norms of a run's sections for spikes, with a SpikeJudge each, and decides with a
// NormGate which steps are skipped. Pure except for learn_recorded().
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/run/record/run_journal.hpp"
#include "runtime/core/result.hpp"
#include "runtime/job/config.hpp"
#include "runtime/observe/report.hpp"
#include "runtime/schedule/norm_gate.hpp"
#include "runtime/schedule/spike_judge.hpp"

namespace maestro {

/// Metric with value 1, only in the rows of steps on which no section trains.
inline constexpr const char* skipped_metric = "skipped";

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

/// Returns a line for the user, and the fields of the event "skipped": {"section", "step", "value", "usual"}.
[[nodiscard]] std::string text_of(const RefusedNorm& refused, StepId step);
[[nodiscard]] EventFields fields_of(const RefusedNorm& refused, StepId step);

/// Message from the writer's thread to the coordinator: the checkpoint before a spike has been kept.
struct SpikeBase {
  std::uint64_t spike = 0;
  std::string path;     ///< empty: none
  std::string problem;  ///< reason if it could not be kept
};

/// Not thread-safe.
class RunGuard {
 public:
  /// `clip_norms`: norms that a section's gradients are clipped at; a smaller norm is not huge.
  explicit RunGuard(const GuardConfig& config, std::map<std::string, double> clip_norms = {});
  /// Returns the norm for which a step is skipped (guard.action = "skip"); nothing if the step is trained.
  [[nodiscard]] std::optional<RefusedNorm> refuse(const SectionNorms& norms);
  /// Returns whether the allowed number of consecutive steps were refused.
  [[nodiscard]] bool refuses_for_too_long() const;
  /// Judges the rows of a finished training step, unless it was skipped.
  [[nodiscard]] std::vector<GuardFinding> judge(const std::vector<StepRow>& rows);
  /// Judges the last steps of a record (steps.jsonl) up to `last` again. Errors name the file.
  Status learn_recorded(const std::filesystem::path& steps, std::uint64_t last);
  /// Returns the lasting spike that a record ends with, with guard.action = "rollback": the record of a run that was
  /// rolled back does not end with one.
  [[nodiscard]] const std::optional<GuardFinding>& unanswered() const { return unanswered_; }
  [[nodiscard]] const GuardConfig& config() const { return config_; }

 private:
  void learn(const std::vector<StepRow>& rows);

  GuardConfig config_;
  std::map<std::string, double> clip_norms_;  // by section
  SpikeRules rules_;
  NormGate gate_;
  std::map<std::string, SpikeJudge> judges_;  // by section
  std::optional<GuardFinding> unanswered_;
};

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::SpikeBase)
