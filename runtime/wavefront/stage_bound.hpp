// SPDX-License-Identifier: Apache-2.0
// Lower bounds from two stages in a row: the work that a section can have done by some time, if part of it has to pass
// through another section first, or has to go on to another section afterwards. Seen backwards in time the two cases
// are the same, so both use these functions. Pure; milliseconds.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace maestro {

/// Work of a section that its neighbour stage constrains.
struct StagedJob {
  std::size_t task = 0;
  double other = 0;  ///< work in the neighbour stage, which comes first
  double body = 0;   ///< work in this section, which may start when that is done
};

struct StagedWork {
  std::size_t other_machines = 1;
  double other_head = 0;  ///< no neighbour work starts before this
  double lag = 0;         ///< time between neighbour and section
  /// Absence of shared neighbour work, so that each job is a single pass there.
  bool separate = true;
  std::vector<StagedJob> jobs;
};

/// Returns sums of the k earliest starts of staged jobs on different machines, together with free jobs with the given
/// heads: for 0 <= k <= machines, as many as there are jobs. Uses SPT, which has the least sum of k completion times.
std::vector<double> earliest_start_sums(const StagedWork& work, std::vector<double> free_heads, std::size_t machines);

/// Returns the makespan of Johnson's order, work divided by machines, the free work first (for hybrid flow shops: Lee
/// and Vairaktarakis 1994): in any schedule the jobs, in the order of leaving the neighbour stage, are a two-machine
/// schedule of no greater length.
double johnson_bound(const StagedWork& work, double free_body, std::size_t machines);

/// Idle time: until `until_ms` the section's machines have `machine_ms` more time than staged work.
struct IdleTime {
  double until_ms = 0;
  double machine_ms = 0;
};
/// Returns the most idle time, max over t <= latest of (machines t - staged work that could be done by t), a fractional
/// knapsack. Free work may fill it.
IdleTime idle_before(const StagedWork& work, std::size_t machines,
                     double latest = std::numeric_limits<double>::infinity());

/// Returns a lower bound on the sum of body times start over this stage's jobs (Eastman, Even and Isaacs 1964).
double weighted_start_sum(const StagedWork& work);

}  // namespace maestro
