// SPDX-License-Identifier: Apache-2.0
// The last training steps of a run, measured on rank 0: enough to rehearse them and to compare them with a prediction.
// Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/messages/messages.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/graph/section_graph.hpp"
#include "runtime/schedule/cost_model.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

using Lane = std::pair<SectionId, ReplicaIndex>;
/// A replica's report at the end of a step or a validation.
struct LaneReport {
  LaneTimes times;
  SentBytes sent;
  ChannelTimes transfers = {};
  WireError wire = {};
};
using LaneReports = std::map<Lane, LaneReport>;

/// Pass times of a step in milliseconds, by section and MicroBatchPlan::index.
using PassTimes = std::vector<std::vector<PassCost>>;

/// A finished step that all of its sections have trained.
struct MeasuredStep {
  StepId step;
  double ms = 0;  ///< time from the previous unit's end to the step's, without pauses
  double planning_ms = 0;
  std::vector<SampleRef> samples;
  PassTimes passes;
  LaneReports lanes;
};

/// Returns the number of steps that a run keeps: enough for a rehearsal that compares twenty.
[[nodiscard]] constexpr std::size_t measured_steps_kept(std::int64_t ahead) {
  return static_cast<std::size_t>(ahead) + 23;
}

/// Returns a lane's time from one step's end to the next, waits included.
[[nodiscard]] double whole_ms(const LaneTimes& times);

/// Returns the pass milliseconds of a step by section, the mean over its replicas and stages, without sources.
[[nodiscard]] std::map<std::string, double> passes_by_section(const MeasuredStep& step, const SectionGraph& graph);

}  // namespace maestro
