// SPDX-License-Identifier: Apache-2.0
// Requests of the control service to the coordinator, inside rank 0's process. Answers are immutable values and
// handles: the service reads them on its threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages/message_types.hpp"
#include "actors/run/coordinator/run_schedule.hpp"
#include "actors/run/record/run_record.hpp"
#include "actors/run/record/step_figures.hpp"

namespace maestro {

enum class RunState : std::uint8_t { starting, running, pausing, paused, stopping, finished };

struct RunStatusRequest {};
struct RunStatus {
  RunState state = RunState::starting;
  std::uint64_t last_step = 0;                              ///< the last complete step
  std::optional<std::uint64_t> stops_after = std::nullopt;  ///< last announced step of a run that was interrupted
  std::uint64_t position = 0;                               ///< the sampler's position after that step
  std::vector<RunUnit> units;                               ///< announced units that have not ended, oldest first
  double elapsed_s = 0;                                     ///< time since the first step began
  double samples_per_s = 0;                                 ///< mean over the last steps
  std::uint64_t samples_trained = 0;
  std::uint64_t tokens_trained = 0;
  std::optional<double> loss;                  ///< loss in the progress line
  std::map<std::string, StepRow> latest;       ///< last row of each section that has rows
  std::optional<SteadyStep> steady_step;       ///< times of the last steps
  std::string checkpoint;                      ///< path of the last checkpoint
  std::vector<std::string> recoveries;         ///< a line for each
  std::uint64_t left_out = 0;                  ///< samples that could not be read
  StepTotals figures;                          ///< totals of the finished steps
  bool announced = false;                      ///< some announced work has not ended
  std::uint64_t events = 0;                    ///< progress messages so far
  std::string working;                         ///< the coordinator's pending background work; empty: none
  std::string waiting;                         ///< what it awaits from a generator; empty: nothing
  std::shared_ptr<const Directory> directory;  ///< null until all processes are connected
  std::shared_ptr<const PlannedStep> planned;  ///< oldest unit's plan; null if no unit has one
};

/// Requests rows of steps and of validations. Each kind is numbered from 0 in creation order; a step that is repeated
/// after a recovery gets a new row number. Negative numbers count from the end. The answer omits rows that are only in
/// the record's files.
struct MetricsRequest {
  std::int64_t first_step_row = 0;
  std::int64_t first_validation_row = 0;
  std::int64_t most = 0;  ///< maximum number of rows of each kind
};
struct MetricsRows {
  std::vector<StepRow> steps;
  std::vector<StepRow> validations;
  std::int64_t first_step_row = 0;  ///< first number in `steps`; above the requested one if rows have left memory
  std::int64_t next_step_row = 0;
  std::int64_t first_validation_row = 0;
  std::int64_t next_validation_row = 0;
};

/// Answered when the checkpoint is committed, or at once with a refusal.
struct CheckpointRequest {};
struct CheckpointAnswer {
  StepId step;
  std::string path;
  std::string refusal;  ///< empty: committed
};

/// A pause is answered after the run has paused or was resumed; a resume is answered at once.
struct PauseRequest {
  bool pause = true;
};
struct PauseAnswer {
  RunState state = RunState::paused;
  StepId step;
};

}  // namespace maestro

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::RunStatusRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::RunStatus)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::MetricsRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::MetricsRows)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::CheckpointRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::CheckpointAnswer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::PauseRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(maestro::PauseAnswer)
