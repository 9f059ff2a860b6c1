// SPDX-License-Identifier: Apache-2.0
// Devices for jobs by their curves (jobs as cells: Crius, arXiv 2403.16125; greedy by marginal gain:
// Optimus, Peng et al. 2018). Pure; any thread.
//
// A job has a rate: its steps in the time of a step of its fixed layout. Again and again the job whose next option adds
// most to the sum of rates for each device that it adds gets that option, until no option fits.
//
// CZ-1 (within the pools): the options have at most the free devices of each pool.
// CZ-2 (ties): of options that add as much, that of the first job is taken, then the first of its curve.
// CZ-3 (running jobs run on): a job with a least option gets that or a faster one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "apps/fleet/fleet_curves.hpp"

namespace maestro {

struct AllocatedJob {
  const FleetCurve* curve = nullptr;
  std::optional<std::size_t> least{};  ///< of FleetCurve::options, for a job that runs
  bool pinned = false;                 ///< it keeps `least`
};

struct CellAllocation {
  std::vector<std::optional<std::size_t>> options;  ///< by job: of FleetCurve::options; none: the job waits
  double rates = 0;                                 ///< of all jobs
};

/// `free`: devices by pool, those of the jobs here among them.
[[nodiscard]] CellAllocation allocate_cells(std::span<const AllocatedJob> jobs, std::vector<std::int64_t> free);

}  // namespace maestro
