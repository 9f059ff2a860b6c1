// SPDX-License-Identifier: Apache-2.0
// The response to the guard's findings: warnings, skipped steps, and the rollback before a lasting spike (CR-7). Owns
// the guard, the checkpoints kept for spikes and the rollback for which the run ends. Coordinator's thread only.
#pragma once

#include "actors/run/coordinator/coordinator_options.hpp"
#include "actors/run/coordinator/norm_totals.hpp"

namespace maestro {

/// A step on which no section trains, since the guard has refused a norm.
struct SkippedStep {
  std::optional<std::string> failure;  ///< none: the run continues
};

class SpikeResponse {
 public:
  /// Called on the writer's thread with the result of a copy; the coordinator passes it to base_kept().
  using Kept = std::function<void(const SpikeBase&)>;

  /// `guard`: none if losses are not judged. Options and schedule outlive the response.
  SpikeResponse(std::optional<RunGuard> guard, const CoordinatorOptions& options, RunSchedule& schedule)
      : guard_(std::move(guard)), options_(&options), schedule_(&schedule) {}

  /// Responds to the spike with which the run's record ends, if it lasts.
  void answer_recorded(const Kept& kept);
  /// Judges the norms of a step before it is trained.
  [[nodiscard]] std::optional<SkippedStep> skip(StepId step, const NormTotals::Answers& norms);
  /// Judges the rows of a finished step.
  void judge(const std::vector<StepRow>& rows, const Kept& kept);
  /// Takes the result of a copy. Returns whether a lasting spike waited for it.
  bool base_kept(const SpikeBase& base);
  /// Returns the rollback for which the schedule has been paused; none: the run continues.
  [[nodiscard]] const std::optional<Rollback>& rollback() const { return rollback_; }

 private:
  void act_on(const GuardFinding& finding, const Kept& kept);
  /// Copies the newest checkpoint before the spike on the writer's thread, as it may have been replaced when it is
  /// needed.
  void keep_base(std::uint64_t spike, const Kept& kept);
  /// Removes the copy after the spike has ended in all sections.
  void drop_base(std::uint64_t spike);
  void roll_back(const GuardFinding& finding);
  /// Reports why the run is not rolled back.
  void stay(const GuardFinding& finding, const std::string& reason) const;

  std::optional<RunGuard> guard_;
  const CoordinatorOptions* options_;
  RunSchedule* schedule_;
  std::map<std::uint64_t, std::optional<SpikeBase>> bases_;  // by the spike's first step; none: the copy has not ended
  std::map<std::uint64_t, int> spiking_;                     // number of sections, by the spike's first step
  std::vector<GuardFinding> lasting_;                        // findings that wait for their base
  std::optional<Rollback> rollback_;
};

}  // namespace maestro
