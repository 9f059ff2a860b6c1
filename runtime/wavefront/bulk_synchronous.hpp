// SPDX-License-Identifier: Apache-2.0
// The baseline of bulk-synchronous frameworks: forward through all sections, then back, everybody in step.
#pragma once

#include "runtime/wavefront/policy.hpp"

namespace maestro {

/// BS-1: the lanes are split into groups, one for each replica of the section with the fewest, each with the lanes of
/// the
///       other sections that it serves; samples go to groups in contiguous shares.
/// BS-2: a group works in phases: one section's forward passes, a task that feeds nobody followed at once by its
/// backward
///       pass; then the sections' backward passes from the last to the first. No pass starts before all passes of the
///       phases before have ended, so two sections of a group are never at work at the same time.
/// BS-3: where slots or in-flight limits do not let the share through at once, it goes in rounds, in order.
/// Groups meet at the end of the step only. Tasks that belong together across groups, or devices that groups share,
/// make it one group of all lanes.
class BulkSynchronousPolicy final : public SchedulingPolicy {
 public:
  [[nodiscard]] std::string_view name() const override { return "bulk_synchronous"; }
  [[nodiscard]] bool synchronous() const override { return true; }
  [[nodiscard]] Result<Schedule> plan(const Workload& workload) const override;
};

}  // namespace maestro
