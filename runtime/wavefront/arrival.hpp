// SPDX-License-Identifier: Apache-2.0
// The naive baseline: round robin over the replicas, in order of arrival.
#pragma once

#include "runtime/wavefront/policy.hpp"

namespace maestro {

/// The n-th task of a section runs on replica n mod replicas. A replica runs its forward passes exactly in this order,
/// and a waiting gradient before them, the oldest first. If that deadlocks under the limits, sections start their tasks
/// in a common order, and at worst a single sample runs at a time.
class ArrivalPolicy final : public SchedulingPolicy {
 public:
  [[nodiscard]] std::string_view name() const override { return "arrival"; }
  [[nodiscard]] Result<Schedule> plan(const Workload& workload) const override;
};

}  // namespace maestro
