// SPDX-License-Identifier: Apache-2.0
// The path from the end of a start to the next start: after a loss (PR-3), or to a checkpoint before a spike (PR-4).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "actors/process/built_process.hpp"
#include "actors/process/process_placements.hpp"
#include "actors/process/run_outputs.hpp"
#include "actors/process/stop_policy.hpp"
#include "actors/run/coordinator/rollback.hpp"
#include "actors/run/coordinator/run_guard.hpp"

namespace maestro {

/// Used by the main thread, except may_recover(), which the supervisor also calls.
class RecoveryPath {
 public:
  /// The parts of the process that end with a start.
  struct Parts {
    BuiltProcess& built;
    ProcessPlacements& placements;
    RunOutputs& outputs;
    StopPolicy& stop;
    std::function<void()> take_down;  ///< stops all parts in order (PR-1)
  };
  RecoveryPath(ProcessPart& part, Parts parts) : part_(part), parts_(std::move(parts)) {}

  [[nodiscard]] bool may_recover() const;
  /// Returns whether this process, which is not rank 0, can take part in another start.
  [[nodiscard]] bool may_survive() const;
  /// Returns whether this start has ended and another one follows.
  [[nodiscard]] bool begun() const { return recovery_.has_value(); }
  /// Takes the record back to the step after which the run continues.
  void continue_record();

  /// Notes a failed start before the run began; another start follows.
  void end_failed_start(const std::string& problem);
  void end_to_recover(const RunOutcome& ended);
  /// Takes down this process's part, on a process other than rank 0.
  void end_to_start_again();
  /// Returns false, with an error in `ended`, if the run cannot go back.
  [[nodiscard]] bool end_to_roll_back(RunOutcome& ended);

  /// Returns the guard with the last steps of the record; without them if they cannot be read (JN-2).
  [[nodiscard]] std::optional<RunGuard> make_guard() const;
  /// Returns the number of rollbacks so far, including earlier ones in the cursor of a resumed run.
  [[nodiscard]] std::uint64_t rollbacks() const;

 private:
  void begin(const std::string& cause, std::chrono::steady_clock::time_point since);
  /// Ends the processes that do not take part in the next start, and takes down everything that this process has built.
  void take_down(const RunOutcome& ended);
  [[nodiscard]] Status branch(const Rollback& way);
  /// Keeps the lines of the discarded steps and the spike's newest checkpoint. Returns the checkpoint's path; empty:
  /// none.
  [[nodiscard]] Result<std::string> keep_spike(const Rollback& way, std::uint64_t base_step) const;

  ProcessPart& part_;
  Parts parts_;
  std::optional<Recovery> recovery_;  // recovery for which this start has ended
};

}  // namespace maestro
