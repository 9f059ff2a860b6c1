// The units a run consists of, in order: training steps, validations, checkpoints. Pure.
//
// RS-1: units come in one order for given settings: train k, then validation after k, then checkpoint after k.
// RS-2: after stop() no further training step is handed out; a checkpoint of the last one is, unless it has one or the
//       run keeps none.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "runtime/core/ids.hpp"

namespace maestro {

struct RunUnit {
  enum class Kind : std::uint8_t { train, validate, checkpoint };
  Kind kind = Kind::train;
  StepId step;
};

struct RunScheduleOptions {
  std::uint64_t first_step = 1;
  std::uint64_t steps = 1;
  std::uint64_t validate_every = 0;
  std::uint64_t checkpoint_every = 0;
  bool validate_at_end = true;
  bool checkpoint_at_end = true;
  bool keeps_state = true;  ///< false: nothing is learnt (emulated devices), so there is nothing to checkpoint
};

class RunSchedule {
 public:
  explicit RunSchedule(const RunScheduleOptions& options);
  /// The next unit, or nothing when the run is complete.
  std::optional<RunUnit> next();
  /// Ends the run after the last training step handed out.
  void stop();

 private:
  void after_step(std::uint64_t step, bool last);

  RunScheduleOptions options_;
  std::uint64_t next_step_;
  std::uint64_t checkpointed_;
  bool stopped_ = false;
  std::deque<RunUnit> pending_;
};

}  // namespace maestro
