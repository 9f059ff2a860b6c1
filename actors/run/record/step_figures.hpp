// SPDX-License-Identifier: Apache-2.0
// Figures of finished training steps for watching a run: their times, sample counts and last passes, and the last
// measured steps, for a rehearsal. Pure; filled by the coordinator, kept when the processes start again.
//
// FG-1 (each end once): every step end adds to each figure once, also if the step is done again after a loss, so
//       figures never fall.
// FG-2 (bounded): passes are kept for the last `kept_steps` finished steps, at most `kept_passes` for each step;
//       keep_measured() bounds the measured steps.
// FG-3 (each measured step once): a step that is done again replaces its earlier measurement and all later steps.
// FG-4 (recent use): the use of the lanes is a sum over the last `use_steps` to twice as many training steps, and over
//       all steps before that many have ended.
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

/// A pass on a lane. The device measured its duration; its place in time is that at which the report arrived.
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
  std::size_t left_out = 0;  ///< number of further passes (FG-2)
};

/// Use of a lane's time, by the clock.
struct LaneUse {
  double busy_ms = 0;      ///< in passes
  double step_end_ms = 0;  ///< at the end of steps
  double whole_ms = 0;
  LaneUse& operator+=(const LaneUse& more);
  [[nodiscard]] double busy_share() const { return whole_ms > 0 ? busy_ms / whole_ms : 0; }
  /// Returns the share in which the lane's devices work for it.
  [[nodiscard]] double device_share() const { return whole_ms > 0 ? (busy_ms + step_end_ms) / whole_ms : 0; }
};
using LaneUses = std::map<Lane, LaneUse>;

/// The figures; answers hold copies.
struct StepTotals {
  Histogram seconds;          ///< step times, from the end of the previous unit, without pauses
  double longest_s = 0;       ///< longest step time
  std::uint64_t samples = 0;  ///< samples trained
  std::uint64_t tokens = 0;   ///< tokens read
  std::optional<std::chrono::steady_clock::time_point> last_end;
  std::optional<std::chrono::system_clock::time_point> last_end_time;
  LaneReports lanes;                                      ///< sums over training steps and validations
  LaneUses recent_use;                                    ///< over the last training steps (FG-4)
  std::vector<std::shared_ptr<const StepPasses>> recent;  ///< passes of the last steps, oldest first
};

/// Not thread-safe.
class StepFigures {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kept_steps = 3;
  static constexpr std::size_t kept_passes = 1000;
  static constexpr std::size_t use_steps = 10;

  StepFigures();
  /// Removes the passes of unfinished steps, which are done again.
  void begin_again() { open_.clear(); }
  void pass_done(const MicroBatchDone& done, Clock::time_point now);
  /// Adds the reports of a training step (`trained`) or a validation.
  void lanes_ended(const LaneReports& lanes, bool trained);
  void step_ended(StepId step, double seconds, const StepSamples& counts, Clock::time_point now,
                  std::chrono::system_clock::time_point time);
  [[nodiscard]] const StepTotals& totals() const { return totals_; }
  /// Keeps at most this many measured steps from now on.
  void keep_measured(std::size_t most) { measured_.keep(most); }
  void step_measured(MeasuredStep step);
  [[nodiscard]] const RecentRows<MeasuredStep>& measured() const { return measured_; }

 private:
  void add_use(const LaneReports& lanes);

  StepTotals totals_;
  LaneUses earlier_use_, newest_use_;  // of the last `use_steps` complete steps, and of the steps after them
  std::size_t newest_steps_ = 0;
  std::map<StepId, StepPasses> open_;
  RecentRows<MeasuredStep> measured_;
};

}  // namespace maestro
