// SPDX-License-Identifier: Apache-2.0
// The baseline of bulk-synchronous frameworks: forward through all sections, then back, all lanes in step.
#pragma once

#include "runtime/wavefront/policy.hpp"

namespace maestro {

/// Plans a step in groups of lanes. Each group runs its share of the samples through all sections and back.
///
/// BS-1 (groups): there are as many groups as the section with the fewest replicas has; each has one of its replicas
/// and the lanes of the other sections that it serves, and a contiguous share of the samples.
/// BS-2 (phases): a group works in phases: the forward passes of a section, each followed at once by the backward pass
/// if its task feeds no section; then the sections' backward passes from the last to the first. No pass starts before
/// all passes of earlier phases have ended, so two sections of a group never work at the same time.
/// BS-3 (rounds): if slots or in-flight limits do not let the share through at once, it goes in rounds, in order.
///
/// Groups meet only at the end of the step. All lanes form a single group if tasks of different groups are linked, or
/// groups share devices.
class BulkSynchronousPolicy final : public SchedulingPolicy {
 public:
  [[nodiscard]] std::string_view name() const override { return "bulk_synchronous"; }
  [[nodiscard]] bool synchronous() const override { return true; }
  [[nodiscard]] Result<Schedule> plan(const Workload& workload) const override;
};

}  // namespace maestro
