// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/fleet_curves.hpp"

#include <algorithm>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

constexpr double s_per_ms = 1e-3;

[[noreturn]] void refuse(const FleetJobKind& job, const std::string& problem) {
  throw JobError("job " + printable(job.name) + ": " + problem);
}

[[noreturn]] void refuse_fixed(const FleetJobKind& job, const FleetCluster& cluster) {
  std::vector<std::string> kinds;
  std::int64_t most = 0;
  for (const FleetPool& pool : cluster.pools) {
    kinds.push_back(pool.kind);
    if (pool.kind == job.kind) most = std::max(most, pool.devices());
  }
  const std::string wanted = std::to_string(job.devices) + " devices of " + printable(job.kind);
  if (most > 0) refuse(job, wanted + ", but " + printable(cluster.name) + " has " + std::to_string(most));
  refuse(job, wanted + ", but " + printable(cluster.name) + " lacks such devices" + nearest_text(job.kind, kinds));
}

FleetCurve curve_of(const FleetJobKind& job, const FleetCluster& cluster) {
  FleetCurve curve;
  for (std::size_t pool = 0; pool < cluster.pools.size(); ++pool) {
    double least_s = 0;
    for (const Cell& cell : job.cells.cells) {
      if (cluster.pools[pool].kind != cell.kind || cell.devices > cluster.pools[pool].devices()) continue;
      const FleetOption option{.pool = pool,
                               .devices = cell.devices,
                               .step_s = cell.step_ms * s_per_ms,
                               .busy = cell.busy,
                               .bytes = cell.bytes};
      const bool is_fixed = cell.kind == job.kind && cell.devices == job.devices;
      if (is_fixed && curve.fixed.devices == 0) curve.fixed = option;
      if (least_s > 0 && option.step_s >= least_s) continue;  // more devices without a gain
      least_s = option.step_s;
      curve.options.push_back(option);
    }
  }
  if (curve.fixed.devices == 0) refuse_fixed(job, cluster);
  return curve;
}

}  // namespace

std::vector<FleetCurve> curves_of(const FleetJobs& jobs, const FleetCluster& cluster) {
  std::vector<FleetCurve> curves;
  for (const FleetJobKind& job : jobs.kinds) curves.push_back(curve_of(job, cluster));
  return curves;
}

}  // namespace maestro
