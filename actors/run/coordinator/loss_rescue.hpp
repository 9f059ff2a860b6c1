// SPDX-License-Identifier: Apache-2.0
// The rescue after the loss of a process (CR-6): surviving replicas of trained sections stop, and their state becomes a
// checkpoint of the last finished step. Owns the replicas' answers and the request that waits for the checkpoint. Only
// decides; the coordinator sends. Coordinator's thread only.
#pragma once

#include "actors/run/coordinator/coordinator_options.hpp"
#include "actors/run/coordinator/open_unit.hpp"

namespace maestro {

/// Returns the replicas of trained sections on other processes; empty if a section lacks such a replica.
[[nodiscard]] std::vector<caf::actor> trained_survivors(const SectionGraph& graph, const Directory& directory,
                                                        ProcessId lost);

/// A checkpoint that survivors can write.
struct RescueCheckpoint {
  RunUnit unit;
  std::map<SectionId, StepId> ahead;  ///< sections whose state is from a later step
  std::vector<caf::actor> writers;
  std::vector<RunUnit> owed;  ///< units left to do after the step: RunRecord::owed
};

class LossRescue {
 public:
  /// The options outlive it. `survivors`: number of replicas that will answer StandStill or fail to.
  LossRescue(const CoordinatorOptions& options, ProcessId lost, std::size_t survivors, caf::response_promise request)
      : options_(&options), lost_(lost), due_(survivors), request_(std::move(request)) {}

  /// Returns whether it was the last answer; skip_answer() does so for a replica that does not answer.
  [[nodiscard]] bool add_answer(const StandsStill& still, const caf::actor& replica);
  [[nodiscard]] bool skip_answer() { return --due_ == 0; }
  /// Returns the reports of the lost process that open steps lack, for sections that have ended on all other processes.
  [[nodiscard]] std::vector<StepDone> missing_ends(const OpenUnits& open, const Directory& directory) const;
  /// Returns the checkpoint to make; nothing if the newest one is as recent, or if survivors lack the state for it.
  [[nodiscard]] std::optional<RescueCheckpoint> checkpoint(const OpenUnits& open, const RunSchedule& schedule,
                                                           std::optional<StepId> newest) const;
  /// Notes that replicas write the checkpoint.
  void begin(const RescueCheckpoint& checkpoint);
  [[nodiscard]] bool makes(const UnitKey& checkpoint) const { return made_ == checkpoint; }
  [[nodiscard]] bool written() const { return written_; }
  /// Answers the request, after the checkpoint was committed or because none can be made.
  void end();

 private:
  /// Returns whether the record has the section's figures of the step.
  [[nodiscard]] bool is_recorded(const OpenUnit& open, SectionId section) const;
  /// Returns whether sections may keep their state from later steps: no validation or checkpoint lies between, and the
  /// record has their figures.
  [[nodiscard]] bool may_stay_ahead(const RescueCheckpoint& checkpoint, const OpenUnits& open,
                                    const RunSchedule& schedule) const;

  const CoordinatorOptions* options_;
  ProcessId lost_;
  std::size_t due_;
  caf::response_promise request_;
  std::vector<std::pair<StandsStill, caf::actor>> standing_;
  std::optional<UnitKey> made_;
  std::vector<RunUnit> owed_;
  bool written_ = false;
};

}  // namespace maestro
