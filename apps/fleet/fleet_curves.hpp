// SPDX-License-Identifier: Apache-2.0
// The cells of a job kind on a cluster's pools. Pure; any thread.
//
// FK-1 (worth their devices): within a pool, a curve's options have rising devices and falling step times; the option
//       of the fixed layout is separate.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/fleet/fleet_cluster.hpp"
#include "apps/fleet/fleet_jobs.hpp"

namespace maestro {

/// A cell on a pool with enough devices of its kind.
struct FleetOption {
  std::size_t pool = 0;
  std::int64_t devices = 0;
  double step_s = 0;
  double busy = 1;
  double bytes = 0;
};

struct FleetCurve {
  std::vector<FleetOption> options;  ///< ordered by pool and devices
  FleetOption fixed;                 ///< the fixed layout, on the first pool with its kind and devices
  /// Returns an option's number of steps in the time that a step takes with the fixed layout.
  [[nodiscard]] double rate(const FleetOption& option) const { return fixed.step_s / option.step_s; }
};

/// Returns the curves by job kind. Throws JobError if a fixed layout does not fit the cluster.
[[nodiscard]] std::vector<FleetCurve> curves_of(const FleetJobs& jobs, const FleetCluster& cluster);

}  // namespace maestro
