// SPDX-License-Identifier: Apache-2.0
// The last training steps of a run as rank 0 has measured them: enough to rehearse them, and to compare them with a
// prediction. Plain data.
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
/// What a replica reported at the end of a step or a validation.
struct LaneReport {
  LaneTimes times;
  SentBytes sent;
  ChannelTimes transfers = {};
};
using LaneReports = std::map<Lane, LaneReport>;

/// The passes of a step in milliseconds, by section and MicroBatchPlan::index.
using PassTimes = std::vector<std::vector<PassCost>>;

/// A finished step that all its sections have trained.
struct MeasuredStep {
  StepId step;
  double ms = 0;  ///< from the end of the unit before it to its own, without pauses
  double planning_ms = 0;
  std::vector<SampleRef> samples;
  PassTimes passes;
  LaneReports lanes;
};

/// Returns how many steps a run keeps: those of a rehearsal, with twenty to compare.
[[nodiscard]] constexpr std::size_t measured_steps_kept(std::int64_t ahead) {
  return static_cast<std::size_t>(ahead) + 23;
}

/// Returns the time of a lane between two steps, waits included.
[[nodiscard]] double whole_ms(const LaneTimes& times);

/// Returns the milliseconds of a step in passes by section, the mean of its replicas and stages; sources left out.
[[nodiscard]] std::map<std::string, double> passes_by_section(const MeasuredStep& step, const SectionGraph& graph);

}  // namespace maestro
