// SPDX-License-Identifier: Apache-2.0
// The figures of a simulated fleet. Pure; any thread.
//
// FV-1 (of all jobs): counts add up to those of the result, and means are over jobs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/fleet/fleet_simulation.hpp"

namespace maestro {

struct FleetJobFigures {
  std::string name;  ///< of the kind of jobs; empty: all
  std::int64_t jobs = 0;
  double mean_wait_s = 0;  ///< from the arrival to the first start
  double mean_completion_s = 0;
  double p99_completion_s = 0;
  std::int64_t moves = 0;
  std::int64_t shared = 0;  ///< jobs that have shared devices
};

struct FleetPoolFigures {
  std::string kind;
  std::int64_t devices = 0;
  double device_hours = 0;
  double in_use = 0;            ///< share of the makespan's device hours
  std::optional<double> price;  ///< of the device hours, a device by its share of a host; where hosts have a price
};

struct FleetFigures {
  FleetJobFigures all;
  std::vector<FleetJobFigures> kinds;  ///< those that were drawn
  std::vector<FleetPoolFigures> pools;
};

[[nodiscard]] FleetFigures figures_of(const FleetCluster& cluster, const FleetJobs& jobs, const FleetResult& result);

}  // namespace maestro
