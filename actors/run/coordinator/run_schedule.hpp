// SPDX-License-Identifier: Apache-2.0
// The units of a run, in order: training steps, validations, checkpoints. Pure.
//
// RS-1 (fixed order): the settings determine the order of units: train k, then the validation after k, then the
//       checkpoint after k, or a shadow after k instead.
// RS-2 (stop): next() returns no further training step after stop(). It returns a checkpoint of the last step, unless
//       that exists or the run keeps no state.
// RS-3 (pause): during a pause next() returns only requested checkpoints; stop() ends a pause.
// RS-4 (no duplicates): a requested checkpoint is of the last training step returned, and no step is checkpointed
//       twice.
// RS-5 (pause after a step): next() returns no step after `pause_after`, only the validation and the checkpoint after
//       it. Then the run is paused. A resume, also before that step, lifts the pause.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "runtime/core/ids.hpp"

namespace maestro {

struct RunUnit {
  enum class Kind : std::uint8_t {
    train,
    validate,
    checkpoint,
    shadow  ///< a checkpoint in memory
  };
  Kind kind = Kind::train;
  StepId step;
};

struct RunScheduleOptions {
  std::uint64_t first_step = 1;
  std::uint64_t steps = 1;
  std::uint64_t validate_every = 0;
  std::uint64_t checkpoint_every = 0;
  std::uint64_t archive_every = 0;  ///< interval of steps that also have a checkpoint
  std::uint64_t shadow_every = 0;
  bool validate_at_end = true;
  bool checkpoint_at_end = true;
  bool keeps_state = true;  ///< false on emulated devices, which train nothing: no checkpoints
  std::optional<std::uint64_t> pause_after = std::nullopt;
  /// Units left of the step before `first_step`, in a run that continues after the loss of a process.
  std::optional<std::vector<RunUnit>> owed;
};

class RunSchedule {
 public:
  explicit RunSchedule(const RunScheduleOptions& options);
  /// Returns the next unit; nothing when the run is complete or paused.
  std::optional<RunUnit> next();
  /// Returns whether no unit is left, even after a resume.
  [[nodiscard]] bool complete() const;
  /// Returns the validations and checkpoints after `step` and earlier steps that next() has not returned.
  [[nodiscard]] std::vector<RunUnit> owed(StepId step) const;
  /// Takes the last training step back, which next() has returned and which does not begin.
  void withdraw();
  /// Ends the run after the last training step returned.
  void stop();
  void pause() { paused_ = !stopped_; }
  void resume() {
    paused_ = false;
    options_.pause_after.reset();
  }
  [[nodiscard]] bool paused() const { return paused_; }
  [[nodiscard]] bool stopped() const { return stopped_; }
  /// Returns the last training step that next() returned; first_step - 1 before that.
  [[nodiscard]] std::uint64_t last_step() const { return next_step_ - 1; }
  /// Puts a checkpoint before all other units, unless its step has a checkpoint. Returns its step; nothing when no step
  /// has been trained yet or the run keeps no state.
  std::optional<StepId> request_checkpoint();

 private:
  void after_step(std::uint64_t step, bool last);

  RunScheduleOptions options_;
  std::uint64_t next_step_;
  std::uint64_t checkpointed_;
  std::uint64_t checkpointed_before_ = 0;  // the last training step returned
  bool stopped_ = false;
  bool paused_ = false;
  std::optional<RunUnit> requested_;  // a checkpoint, before all other units
  std::deque<RunUnit> pending_;
};

}  // namespace maestro
