// SPDX-License-Identifier: Apache-2.0
// A simulated fleet's figures. Pure; any thread.
//
// FV-1 (of all jobs): counts add up to the counts of the result, and means are over jobs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/fleet/fleet_simulation.hpp"

namespace maestro {

struct FleetJobFigures {
  std::string name;  ///< job kind; empty: all
  std::int64_t jobs = 0;
  double mean_wait_s = 0;  ///< from the arrival to the first start
  double mean_completion_s = 0;
  double p99_completion_s = 0;
  std::int64_t moves = 0;
  std::int64_t shared = 0;  ///< number of jobs that shared devices
};

struct FleetPoolFigures {
  std::string kind;
  std::int64_t devices = 0;
  double device_hours = 0;
  double in_use = 0;            ///< share of the makespan's device hours
  std::optional<double> price;  ///< price of the device hours at a device's share of a host's price, if there is one
};

struct FleetFigures {
  FleetJobFigures all;
  std::vector<FleetJobFigures> kinds;  ///< drawn kinds
  std::vector<FleetPoolFigures> pools;
};

[[nodiscard]] FleetFigures figures_of(const FleetCluster& cluster, const FleetJobs& jobs, const FleetResult& result);

}  // namespace maestro
