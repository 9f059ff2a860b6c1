// SPDX-License-Identifier: Apache-2.0
// Execution of a planned step: begin and duration of its passes, compared with the plan and with the lower bound. Pure.
// Coordinator's thread only.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages/messages.hpp"
#include "actors/run/coordinator/measured_steps.hpp"
#include "actors/run/record/run_record.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/phase_counts.hpp"

namespace maestro {

class StepWatch {
 public:
  using Clock = std::chrono::steady_clock;
  StepWatch() = default;
  /// If measured() is not used, samples may be moved out of the plan afterwards.
  StepWatch(const SectionGraph& graph, StepPlanned planned);

  /// Records that the passes of a micro-batch are done.
  void done(const MicroBatchDone& message, Clock::time_point now);
  /// Returns the makespan from the first pass's begin to the last pass's end, and its lower bound with the measured
  /// times. The makespan is never below the bound.
  [[nodiscard]] SchedulingRow row(Clock::time_point run_began) const;
  /// Returns the measured passes, for the cost model, as if on the fastest lanes of their sections. Needs the plan's
  /// samples.
  [[nodiscard]] std::vector<MeasuredPass> measured() const;
  /// Returns the pass times by section and MicroBatchPlan::index; empty for a section that had trained on the step
  /// already.
  [[nodiscard]] PassTimes times() const;
  /// Returns whether the passes of all micro-batches of the section are done.
  [[nodiscard]] bool complete(SectionId section) const { return planned_ && left_.at(section.value()) == 0; }
  /// Returns whether the section has a micro-batch in the step.
  [[nodiscard]] bool active(SectionId section) const { return tokens(section) > 0; }
  /// Returns the section's tokens in the step, 0 without micro-batches.
  [[nodiscard]] std::int64_t tokens(SectionId section) const { return tokens_.at(section.value()); }
  /// Returns the plan; null before the step was planned.
  [[nodiscard]] std::shared_ptr<const PlannedStep> planned() const { return planned_; }

  /// Returns the phases of a bulk-synchronous plan; empty for other plans.
  [[nodiscard]] PhaseCounts& phases() { return phases_; }

 private:
  /// Returns the index of a task; nothing for the source, which is not planned.
  [[nodiscard]] std::optional<std::size_t> task_of(SectionId section, std::uint32_t index) const;

  std::shared_ptr<PlannedStep> planned_;
  double planning_ms_ = 0;
  Workload measured_;                              // the plan's workload, with measured times
  std::vector<double> busy_ms_;                    // by section of the workload
  std::vector<PassCost> times_;                    // by task
  std::vector<std::vector<std::size_t>> task_of_;  // by section and index of the micro-batch
  std::vector<std::int64_t> tokens_;               // by section
  std::vector<std::size_t> left_;                  // micro-batches whose passes are not done, by section
  PhaseCounts phases_;
  std::optional<Clock::time_point> begin_;
  Clock::time_point end_;
};

}  // namespace maestro
