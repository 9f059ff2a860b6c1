// SPDX-License-Identifier: Apache-2.0
// Watches the losses and gradient norms of all sections of a run for spikes, with a SpikeJudge each, and decides with a
// NormGate which steps are skipped. Pure but for learn_recorded().
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

/// 1 in the row of a step that no section trains on; in no other.
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

/// To the coordinator itself, from the writer's thread: the checkpoint before a spike, which is kept.
struct SpikeBase {
  std::uint64_t spike = 0;
  std::string path;     ///< empty: there is none
  std::string problem;  ///< why it could not be kept
};

/// Not thread-safe.
class RunGuard {
 public:
  explicit RunGuard(const GuardConfig& config);
  /// Decides before a step is trained whether it is: returns the norm for which it is not (guard.action = "skip").
  [[nodiscard]] std::optional<RefusedNorm> refuse(const SectionNorms& norms);
  /// Returns whether as many steps in a row were refused as are allowed.
  [[nodiscard]] bool refuses_for_too_long() const;
  /// Judges the rows of a finished training step, unless it was skipped.
  [[nodiscard]] std::vector<GuardFinding> judge(const std::vector<StepRow>& rows);
  /// Takes the last steps of a record (steps.jsonl) up to `last` as judged before. Errors name the file.
  Status learn_recorded(const std::filesystem::path& steps, std::uint64_t last);
  /// Returns the last spike of a record that lasts, with guard.action = "rollback": a run that has gone back has no
  /// such line.
  [[nodiscard]] const std::optional<GuardFinding>& unanswered() const { return unanswered_; }
  [[nodiscard]] const GuardConfig& config() const { return config_; }

 private:
  void learn(const std::vector<StepRow>& rows);

  GuardConfig config_;
  SpikeRules rules_;
  NormGate gate_;
  std::map<std::string, SpikeJudge> judges_;  // by section
  std::optional<GuardFinding> unanswered_;
};

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::SpikeBase)
