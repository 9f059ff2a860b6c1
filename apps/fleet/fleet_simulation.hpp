// SPDX-License-Identifier: Apache-2.0
// Several jobs on a described cluster, in virtual time. Nothing is run: a job takes its steps at the pace of its cell.
//
// Policies. `fixed`: every job has the devices of its fixed layout, in the order of arrival; a later job goes first
// where the job at the head of its pool loses nothing by it (EASY backfilling, Lifka 1995, with exact times). `cells`:
// whenever a job arrives or ends, allocate_cells() chooses anew for waiting and running jobs. A running job changes its
// devices only where the rates of all jobs gain more over its remaining time than it loses by the move; it never stops
// for others.
//
// With `pack`, waiting jobs may then share the devices of running jobs (best_pairs()), where the two do more work than
// the running job alone, counted in devices of fixed layouts. A pair stays until one of it ends.
//
// Assumed: the first start takes no time, a part of a step counts, devices of a pool are equal wherever they are, and
// memory is the only limit of sharing.
//
// FX-1 (conserved devices): at no time are more devices of a pool in use than it has.
// FX-2 (all work is done): every job ends, after as many steps at the pace of its spans as it has.
// FX-3 (no clock): equal inputs give equal results.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "apps/fleet/fleet_curves.hpp"

namespace maestro {

enum class FleetPolicy { fixed, cells };

struct FleetOptions {
  FleetPolicy policy = FleetPolicy::fixed;
  bool pack = false;
  double move_s = 0;
  double headroom = 0.92;  ///< share of a device's memory that two jobs may need together
};

/// A job on devices at one pace.
struct FleetSpan {
  std::size_t job = 0;
  std::size_t pool = 0;
  std::int64_t devices = 0;
  double from_s = 0;
  double works_from_s = 0;  ///< after from_s where it has moved
  double to_s = 0;
  double step_s = 0;
  bool guest = false;  ///< on the devices of another job
};

struct FleetJobResult {
  FleetJob job;
  double start_s = 0;
  double end_s = 0;
  std::int64_t moves = 0;
  bool packed = false;  ///< it has shared devices
  [[nodiscard]] double completion_s() const { return end_s - job.arrival_s; }
};

struct FleetResult {
  std::vector<FleetJobResult> jobs;    ///< in the order of arrival
  std::vector<FleetSpan> spans;        ///< in the order of their ends
  std::vector<double> device_s;        ///< by pool: devices in use
  std::int64_t placements = 0;         ///< starts and moves
  std::int64_t spread_placements = 0;  ///< on more hosts than they need
  double makespan_s = 0;               ///< from the first arrival to the last end
};

/// `jobs`: by arrival. `curves`: by kind of jobs.
[[nodiscard]] FleetResult simulate_fleet(const FleetCluster& cluster, const std::vector<FleetCurve>& curves,
                                         const std::vector<FleetJob>& jobs, const FleetOptions& options);

}  // namespace maestro
