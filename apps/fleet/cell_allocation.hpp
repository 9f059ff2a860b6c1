// SPDX-License-Identifier: Apache-2.0
// Allocates devices to jobs by their curves (jobs as cells: Crius, arXiv 2403.16125; greedy by marginal gain:
// Optimus, Peng et al. 2018). Pure; any thread.
//
// A job's rate is its number of steps in the time that a step takes with its fixed layout. The allocation repeatedly
// gives the option with the largest increase of the summed rates per added device to its job, until no option fits.
//
// CZ-1 (within the pools): the options use at most the free devices of each pool.
// CZ-2 (ties): among equal increases the first job wins, then the first option in its curve.
// CZ-3 (running jobs run on): a job with a least option gets it or a faster option.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "apps/fleet/fleet_curves.hpp"

namespace maestro {

struct AllocatedJob {
  const FleetCurve* curve = nullptr;
  std::optional<std::size_t> least{};  ///< index into FleetCurve::options, for a running job
  bool pinned = false;                 ///< whether the job keeps `least`
};

struct CellAllocation {
  std::vector<std::optional<std::size_t>> options;  ///< indices into FleetCurve::options, by job; none: the job waits
  double rates = 0;                                 ///< sum over all jobs
};

/// Returns the allocation. `free`: devices by pool, with the devices of these jobs.
[[nodiscard]] CellAllocation allocate_cells(std::span<const AllocatedJob> jobs, std::vector<std::int64_t> free);

}  // namespace maestro
