// SPDX-License-Identifier: Apache-2.0
// The last steps of a run in virtual time: how long they would have taken if the runtime had no costs except the
// measured passes, step ends and transfers. Pure.
//
// Rank 0 knows each step's samples and planning time and each micro-batch's passes, and uses them unchanged. A lane
// reports its total time at step ends. Its lower quartile over the steps is the time of the optimizer's step, as a lane
// also waits there for a shared device. An exchange between replicas takes as long as the shortest wait of a replica,
// a transfer its mean over the steps. The time of a hop is assumed (usual_hop_ms). Measured times already
// include the sharing of cores and GPUs, so the rehearsal does not add it.
//
// UR-1 (new plans): the steps are planned anew, with the job's policy, and follow the rules of a run (RH-1).
// UR-2 (same steps): both periods and all shares are over the same steps.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

struct ResolvedJob;
struct MeasuredStep;

/// Shares of a section's lane time.
struct RehearsedUse {
  double passes = 0;
  double measured_passes = 0;
  double step_ends = 0;
  double measured_step_ends = 0;
};

struct RunRehearsal {
  std::size_t steps = 0;                         ///< number of compared steps
  double step_ms = 0;                            ///< rehearsed time from the end of a step to the end of the next
  double measured_step_ms = 0;                   ///< measured time from the end of a step to the end of the next
  std::map<std::string, RehearsedUse> sections;  ///< shares by section or stage
};

/// Rehearses the measured steps. Fails with the reason if there are too few steps, or if planning them anew would take
/// more than five seconds.
[[nodiscard]] Result<RunRehearsal> rehearse_run(const ResolvedJob& plan, const std::deque<MeasuredStep>& measured);

}  // namespace maestro
