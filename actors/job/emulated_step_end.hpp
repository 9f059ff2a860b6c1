// SPDX-License-Identifier: Apache-2.0
// Times of a step's end on emulated devices, by [emulation]. Pure.
#pragma once

#include "actors/job/resolved_job.hpp"

namespace maestro {

/// Times of each rank.
struct EmulatedStepEnd {
  double sum_ms = 0;   ///< gradient sum over the replicas, in a ring
  double step_ms = 0;  ///< clipping and optimizer
};
/// Returns a section's times: zeros if it is not trained.
[[nodiscard]] EmulatedStepEnd emulated_step_end(const ResolvedJob& plan, SectionId section);

}  // namespace maestro
