// SPDX-License-Identifier: Apache-2.0
// Clusters and jobs for tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/fleet/fleet_curves.hpp"

namespace maestro {

/// Returns a cluster of one kind, "h100".
inline FleetCluster one_pool(std::int64_t hosts, std::int64_t devices_of_host) {
  return {.name = "one pool",
          .pools = {{.kind = "h100", .hosts = hosts, .devices_of_host = devices_of_host, .memory_bytes = 100}}};
}

/// Returns a job on "h100"; points: devices, milliseconds per step.
inline FleetJobKind job_of(const std::string& name, const std::vector<std::pair<std::int64_t, double>>& points,
                           std::int64_t fixed_devices, double busy = 0.9, double bytes = 10) {
  FleetJobKind job;
  job.name = name;
  job.kind = "h100";
  job.devices = fixed_devices;
  for (const auto& [devices, ms] : points) {
    job.cells.cells.push_back({.kind = "h100", .devices = devices, .step_ms = ms, .busy = busy, .bytes = bytes});
  }
  return job;
}

inline FleetJobs jobs_of(std::vector<FleetJobKind> kinds) {
  FleetJobs jobs;
  jobs.kinds = std::move(kinds);
  return jobs;
}

}  // namespace maestro
