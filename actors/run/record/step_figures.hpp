// SPDX-License-Identifier: Apache-2.0
// Figures of the training steps that have ended, for those who watch a run: how long they took, what they trained, and
// the passes of the last few; and the last steps as they were measured, for a rehearsal. Pure; filled by the
// coordinator, kept from one start of the processes to the next.
//
// FG-1 (each end once): every end of a step adds to each figure once, also of a step that is done again after a loss,
//       so no figure falls.
// FG-2 (bounded): the passes of at most `kept_steps` ended steps are kept, and at most `kept_passes` of each; of
//       measured steps as many as keep_measured() allows.
// FG-3 (each measured step once): a step that is done again replaces those from it on.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "actors/messages/messages.hpp"
#include "actors/run/coordinator/measured_steps.hpp"
#include "actors/run/record/recent_rows.hpp"
#include "actors/run/record/run_record.hpp"
#include "runtime/observe/metrics.hpp"

namespace maestro {

/// Returns the mean time of a piece on each channel, for the cost model.
[[nodiscard]] std::vector<MeasuredTransfer> measured_transfers(const LaneReports& lanes);

/// A pass on a lane, as the device measured it; placed in time by the arrival of its report.
struct DonePass {
  SectionId section;
  ReplicaIndex replica;
  std::uint32_t micro_batch = 0;
  bool backward = false;
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
};
struct StepPasses {
  StepId step;
  std::vector<DonePass> passes;
  std::size_t left_out = 0;  ///< passes beyond those (FG-2)
};

/// The figures, copied into answers.
struct StepTotals {
  Histogram seconds;          ///< of a step: from the end of the unit before it to its own end, without pauses
  double longest_s = 0;       ///< step
  std::uint64_t samples = 0;  ///< trained
  std::uint64_t tokens = 0;   ///< read
  std::optional<std::chrono::steady_clock::time_point> last_end;
  std::optional<std::chrono::system_clock::time_point> last_end_time;
  LaneReports lanes;                                      ///< sums over training steps and validations
  LaneReports last_lanes;                                 ///< of the last training step
  std::vector<std::shared_ptr<const StepPasses>> recent;  ///< the oldest first
};

/// Not thread-safe.
class StepFigures {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kept_steps = 3;
  static constexpr std::size_t kept_passes = 1000;

  StepFigures();
  /// Forgets the passes of steps that have not ended: they are done again.
  void begin_again() { open_.clear(); }
  void pass_done(const MicroBatchDone& done, Clock::time_point now);
  /// Of a training step, or of a validation.
  void lanes_ended(const LaneReports& lanes, bool trained);
  void step_ended(StepId step, double seconds, const StepCounts& counts, Clock::time_point now,
                  std::chrono::system_clock::time_point time);
  [[nodiscard]] const StepTotals& totals() const { return totals_; }
  /// At most this many measured steps are kept from now on.
  void keep_measured(std::size_t most) { measured_.keep(most); }
  void step_measured(MeasuredStep step);
  [[nodiscard]] const RecentRows<MeasuredStep>& measured() const { return measured_; }

 private:
  StepTotals totals_;
  std::map<StepId, StepPasses> open_;
  RecentRows<MeasuredStep> measured_;
};

}  // namespace maestro
