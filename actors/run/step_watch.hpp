// SPDX-License-Identifier: Apache-2.0
// What really happened to a planned step: when its passes ran, how long each took, and how that compares with the plan
// and with the lower bound. Pure; belongs to the coordinator.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages/messages.hpp"
#include "actors/run/run_record.hpp"
#include "runtime/graph/section_graph.hpp"

namespace maestro {

class StepWatch {
 public:
  using Clock = std::chrono::steady_clock;
  StepWatch() = default;
  /// Samples of the plan may be moved out of it afterwards, unless measured() is wanted.
  StepWatch(const SectionGraph& graph, StepPlanned planned);

  /// The passes of one micro-batch are done.
  void done(const MicroBatchDone& message, Clock::time_point now);
  /// Makespan from the begin of the first pass to the end of the last one, lower bound from the times measured.
  [[nodiscard]] SchedulingRow row(Clock::time_point run_began) const;
  /// What the passes took, for the cost model. Needs the samples of the plan.
  [[nodiscard]] std::vector<MeasuredPass> measured() const;
  /// The section has a micro-batch in the step.
  [[nodiscard]] bool active(SectionId section) const { return active_.at(section.value()); }
  /// Null before the step was planned.
  [[nodiscard]] std::shared_ptr<const PlannedStep> planned() const { return planned_; }

  /// Passes of a phase that has just become the one to run: what to open, by lanes of the group.
  struct Opening {
    PhaseOpen open;
    std::vector<std::pair<SectionId, ReplicaIndex>> lanes;
  };
  /// First phases of groups that have no phase 0.
  [[nodiscard]] std::vector<Opening> first_phases() const;
  /// The next phase, when `message` ended the last pass of the one before it.
  std::optional<Opening> phase_pass_done(const PhasePassDone& message);

 private:
  struct Group {
    std::map<std::uint32_t, std::int64_t> left;  // passes by phase
    std::vector<std::pair<SectionId, ReplicaIndex>> lanes;
  };
  [[nodiscard]] Opening opening(std::uint32_t group) const;
  /// No task: of the source, which is not planned.
  [[nodiscard]] std::optional<std::size_t> task_of(SectionId section, std::uint32_t index) const;

  const SectionGraph* graph_ = nullptr;
  std::shared_ptr<PlannedStep> planned_;
  double planning_ms_ = 0;
  Workload measured_;                              // the plan's, with times as they were
  std::vector<PassCost> times_;                    // by task
  std::vector<std::vector<std::size_t>> task_of_;  // by section and index of the micro-batch
  std::vector<bool> active_;                       // by section
  std::map<std::uint32_t, Group> groups_;          // of a bulk-synchronous plan
  std::optional<Clock::time_point> begin_;
  Clock::time_point end_;
};

}  // namespace maestro
