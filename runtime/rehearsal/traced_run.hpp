// SPDX-License-Identifier: Apache-2.0
// A run as its trace has it: the samples of its steps, how long every pass, action and transfer took, and when each
// step ended. Plain data.
//
// TU-1 (whole steps): where events were dropped, the units from the first one on that a lane may lack are left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/graph/pass.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// A training step or a validation.
struct TracedUnit {
  StepId step;
  Pass pass = Pass::train;
  std::vector<SampleRef> samples;  ///< their ids are their places
  double planning_ms = 0;
  double end_ms = 0;        ///< of its last pass or action
  bool checkpoint = false;  ///< one was made behind it
};

/// The passes of a micro-batch, each as long as that of its slowest rank.
struct TracedPass {
  std::int64_t rows = 0;
  double forward_ms = 0;  ///< of a pass in both directions at once: all of it
  double backward_ms = 0;
};
/// Section or stage, step, pass, MicroBatchPlan::index.
using TracedPassKey = std::tuple<std::string, StepId, Pass, std::uint32_t>;

/// The work of a replica at the end of a training step, under one name.
struct TracedAction {
  double start_ms = 0;  ///< of its first slice on any rank
  double end_ms = 0;    ///< of its last
};
/// "reduce", "norm", "step", ... to times.
using TracedActions = std::map<std::string, TracedAction>;

/// A lane of a step.
using TracedLaneKey = std::tuple<std::string, std::int64_t, StepId>;  ///< section or stage, replica, step
struct TracedLane {
  double last_pass_ms = 0;  ///< end of its last pass
  TracedActions actions;
};

/// A piece that was written to another process.
struct TracedWrite {
  std::string from, to;  ///< sections or stages
  std::int64_t rows = 0;
  double ms = 0;
};

struct TracedRun {
  std::map<std::string, std::string> facts;  ///< "job": the effective job; "processes", "hosts", "cpu_devices", "cores"
  std::vector<TracedUnit> units;             ///< in the order in which they were planned
  std::map<TracedPassKey, TracedPass> passes;
  std::map<TracedLaneKey, TracedLane> lanes;  ///< of training steps
  std::vector<TracedWrite> writes;
  double hop_ms = 0;          ///< usual time between passes of a lane that follow each other without a wait
  std::uint64_t dropped = 0;  ///< events that the trace lacks
};

/// Errors name the file: it cannot be read, is no trace of maestro, or has no samples of steps.
[[nodiscard]] Result<TracedRun> read_traced_run(const std::filesystem::path& trace);

}  // namespace maestro
