// SPDX-License-Identifier: Apache-2.0
#include "apps/fleet/fleet_figures.hpp"

#include "runtime/core/quantile.hpp"

namespace maestro {

namespace {

constexpr double s_per_hour = 3600;
constexpr double slowest_share = 0.99;

FleetJobFigures figures_of_jobs(const std::string& name, const std::vector<const FleetJobResult*>& jobs) {
  FleetJobFigures figures{.name = name, .jobs = std::ssize(jobs)};
  std::vector<double> completions;
  for (const FleetJobResult* job : jobs) {
    figures.mean_wait_s += (job->start_s - job->job.arrival_s) / static_cast<double>(jobs.size());
    figures.mean_completion_s += job->completion_s() / static_cast<double>(jobs.size());
    figures.moves += job->moves;
    figures.shared += job->packed ? 1 : 0;
    completions.push_back(job->completion_s());
  }
  if (!jobs.empty()) figures.p99_completion_s = quantile_of(completions, slowest_share);
  return figures;
}

}  // namespace

FleetFigures figures_of(const FleetCluster& cluster, const FleetJobs& jobs, const FleetResult& result) {
  FleetFigures figures;
  std::vector<const FleetJobResult*> all;
  std::vector<std::vector<const FleetJobResult*>> by_kind(jobs.kinds.size());
  for (const FleetJobResult& job : result.jobs) {
    all.push_back(&job);
    by_kind[job.job.kind].push_back(&job);
  }
  figures.all = figures_of_jobs("", all);
  for (std::size_t kind = 0; kind < by_kind.size(); ++kind) {
    if (!by_kind[kind].empty()) figures.kinds.push_back(figures_of_jobs(jobs.kinds[kind].name, by_kind[kind]));
  }
  for (std::size_t at = 0; at < cluster.pools.size(); ++at) {
    const FleetPool& pool = cluster.pools[at];
    FleetPoolFigures& of_pool = figures.pools.emplace_back();
    of_pool.kind = pool.kind;
    of_pool.devices = pool.devices();
    of_pool.device_hours = result.device_s[at] / s_per_hour;
    const double all_s = result.makespan_s * static_cast<double>(pool.devices());
    of_pool.in_use = all_s > 0 ? result.device_s[at] / all_s : 0;
    if (pool.price_per_hour <= 0) continue;
    of_pool.price = of_pool.device_hours / static_cast<double>(pool.devices_of_host) * pool.price_per_hour;
  }
  return figures;
}

}  // namespace maestro
