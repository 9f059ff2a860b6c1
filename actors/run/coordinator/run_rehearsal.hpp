// SPDX-License-Identifier: Apache-2.0
// The last steps of a run in virtual time: how long they would have taken if the runtime cost nothing beside the
// measured passes, step ends and transfers. Pure.
//
// Known on rank 0, and used as they are: the samples of each step, the passes of each micro-batch, the time in which it
// was planned. A lane reports its time at step ends as a sum, which stands for the optimizer's step: the lower quartile
// over steps, as a lane also waits there for a device that others use. An exchange between replicas takes as long as
// the replica that waits least for it, a transfer its mean over the steps. A hop is assumed (usual_hop_ms). Devices
// that share a core, and sections that share a GPU, do so in the measured times, and not once more in the rehearsal.
//
// UR-1 (own plans): the steps are planned anew, by the job's policy, and play by the rules of a run (RH-1).
// UR-2 (same steps): the two periods are medians over the same steps, the shares are of the same steps.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

struct ResolvedJob;
struct MeasuredStep;

/// Shares of the time of a section's lanes.
struct RehearsedUse {
  double passes = 0;
  double measured_passes = 0;
  double step_ends = 0;
  double measured_step_ends = 0;
};

struct RunRehearsal {
  std::size_t steps = 0;                         ///< compared
  double step_ms = 0;                            ///< rehearsed: from the end of one step to the end of the next
  double measured_step_ms = 0;                   ///< likewise
  std::map<std::string, RehearsedUse> sections;  ///< by section or stage
};

/// Returns the reason as an error where the steps cannot be rehearsed: there are too few, or planning them anew would
/// take over five seconds.
[[nodiscard]] Result<RunRehearsal> rehearse_run(const ResolvedJob& plan, const std::deque<MeasuredStep>& measured);

}  // namespace maestro
