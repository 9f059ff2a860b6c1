// SPDX-License-Identifier: Apache-2.0
// The cells of a kind of jobs on the pools of a cluster. Pure; any thread.
//
// FK-1 (worth their devices): in a pool, the options of a curve have rising devices and falling times of a step; the
//       option of the fixed layout stands apart.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/fleet/fleet_cluster.hpp"
#include "apps/fleet/fleet_jobs.hpp"

namespace maestro {

/// A cell on a pool that has its devices.
struct FleetOption {
  std::size_t pool = 0;
  std::int64_t devices = 0;
  double step_s = 0;
  double busy = 1;
  double bytes = 0;
};

struct FleetCurve {
  std::vector<FleetOption> options;  ///< by pool and devices
  FleetOption fixed;                 ///< on the first pool that has its kind and devices
  /// Returns the steps of an option in the time of a step of the fixed layout.
  [[nodiscard]] double rate(const FleetOption& option) const { return fixed.step_s / option.step_s; }
};

/// Returns the curves by kind of jobs. Throws JobError for a fixed layout that the cluster has no room for, and for
/// cells of several kinds where the cluster has no name for its devices.
[[nodiscard]] std::vector<FleetCurve> curves_of(const FleetJobs& jobs, const FleetCluster& cluster);

}  // namespace maestro
