// SPDX-License-Identifier: Apache-2.0
// A run as recorded in its trace: the samples of its steps, the times of passes, actions and transfers, and the ends of
// steps. Plain data.
//
// TU-1 (whole steps): if events were dropped, units from the first that a lane may lack are left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/graph/pass.hpp"
#include "runtime/rehearsal/rehearsed_rollouts.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// A training step or a validation.
struct TracedUnit {
  StepId step;
  Pass pass = Pass::train;
  std::vector<SampleRef> samples;  ///< samples; their ids are their positions
  double planning_ms = 0;
  double end_ms = 0;                             ///< end of its last pass or action
  bool checkpoint = false;                       ///< a checkpoint was made after it
  std::optional<RehearsedRollout> rollout = {};  ///< samples that a generator makes; none, or not known
};

/// The passes of a micro-batch, with the times of the slowest rank.
struct TracedPass {
  std::int64_t rows = 0;
  double forward_ms = 0;  ///< forward time, or the total of a pass in both directions at once
  double backward_ms = 0;
};
/// The section or stage, the step, the pass and MicroBatchPlan::index.
using TracedPassKey = std::tuple<std::string, StepId, Pass, std::uint32_t>;

/// A replica's work with one name at the end of a training step.
struct TracedAction {
  double start_ms = 0;  ///< start of its first slice on any rank
  double end_ms = 0;    ///< end of its last slice
};
/// Times by name: "reduce", "norm", "step", ...
using TracedActions = std::map<std::string, TracedAction>;

/// A lane of a step.
using TracedLaneKey = std::tuple<std::string, std::int64_t, StepId>;  ///< section or stage, replica, step
struct TracedLane {
  double last_pass_ms = 0;  ///< end of its last pass
  TracedActions actions;
};

/// A piece that was written to another process.
struct TracedWrite {
  std::string from, to;  ///< names of sections or stages
  std::int64_t rows = 0;
  double ms = 0;
};

/// A generator's work, in milliseconds.
struct TracedGeneration {
  std::vector<double> prefills;                          ///< prompt blocks
  std::vector<std::pair<std::int64_t, double>> decodes;  ///< decode steps, with their sequences
  std::vector<double> takes;                             ///< versions that it takes
};

struct TracedRun {
  std::map<std::string, std::string> facts;  ///< "job": the effective job; "processes", "hosts", "cpu_devices", "cores"
  std::vector<TracedUnit> units;             ///< units in the order of their planning
  std::map<TracedPassKey, TracedPass> passes;
  std::map<TracedLaneKey, TracedLane> lanes;  ///< lanes in training steps
  std::vector<TracedWrite> writes;
  TracedGeneration generation;
  double hop_ms = 0;          ///< usual time between consecutive passes of a lane without a wait
  std::uint64_t dropped = 0;  ///< events that the trace lacks
};

/// Reads a trace. Errors name the file: it cannot be read, is not a trace of maestro, or lacks the samples of steps.
[[nodiscard]] Result<TracedRun> read_traced_run(const std::filesystem::path& trace);

}  // namespace maestro
