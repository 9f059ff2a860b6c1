// SPDX-License-Identifier: Apache-2.0
// Simulates several jobs on a described cluster, in virtual time: a job takes its steps at its cell's pace.
//
// Policies. `fixed`: every job has the devices of its fixed layout, in the order of arrival; a later job may start
// first if it does not delay the job at the head of its pool (EASY backfilling, Lifka 1995, with exact times). `cells`:
// after every arrival or end, allocate_cells() chooses again for waiting and running jobs. A running job changes its
// devices only if the rates of all jobs gain more over its remaining time than it loses by the move; it never stops for
// other jobs.
//
// With `pack`, waiting jobs may then share the devices of running jobs (best_pairs()), if the two do more work together
// than the running job does without sharing, counted in devices of fixed layouts. A pair lasts until one of them ends.
//
// Assumptions: the first start takes no time, a partial step counts, the devices of a pool are equal on all hosts, and
// only memory limits sharing.
//
// FX-1 (conserved devices): never are more devices of a pool in use than it has.
// FX-2 (all work is done): every job ends after all its steps, at the pace of its spans.
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

/// A period during which a job runs on the same devices at the same pace.
struct FleetSpan {
  std::size_t job = 0;
  std::size_t pool = 0;
  std::int64_t devices = 0;
  double from_s = 0;
  double works_from_s = 0;  ///< later than from_s after a move
  double to_s = 0;
  double step_s = 0;
  bool guest = false;  ///< whether the devices belong to another job
};

struct FleetJobResult {
  FleetJob job;
  double start_s = 0;
  double end_s = 0;
  std::int64_t moves = 0;
  bool packed = false;  ///< whether it shared devices
  [[nodiscard]] double completion_s() const { return end_s - job.arrival_s; }
};

struct FleetResult {
  std::vector<FleetJobResult> jobs;    ///< in the order of arrival
  std::vector<FleetSpan> spans;        ///< in the order of their ends
  std::vector<double> device_s;        ///< device seconds in use, by pool
  std::int64_t placements = 0;         ///< number of starts and moves
  std::int64_t spread_placements = 0;  ///< number of placements on more hosts than needed
  double makespan_s = 0;               ///< time from the first arrival to the last end
};

/// Returns the simulation's result. `jobs` are ordered by arrival, `curves` by job kind.
[[nodiscard]] FleetResult simulate_fleet(const FleetCluster& cluster, const std::vector<FleetCurve>& curves,
                                         const std::vector<FleetJob>& jobs, const FleetOptions& options);

}  // namespace maestro
