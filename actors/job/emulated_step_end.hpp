// SPDX-License-Identifier: Apache-2.0
// The time that the end of a step takes on emulated devices, by [emulation]. Pure.
#pragma once

#include "actors/job/resolved_job.hpp"

namespace maestro {

/// Times of each rank of a section.
struct EmulatedStepEnd {
  double sum_ms = 0;   ///< of its gradients over the replicas: a ring
  double step_ms = 0;  ///< clipping and optimizer
};
/// Returns zeros for a section that is not trained.
[[nodiscard]] EmulatedStepEnd emulated_step_end(const ResolvedJob& plan, SectionId section);

}  // namespace maestro
