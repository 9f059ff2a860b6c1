// SPDX-License-Identifier: Apache-2.0
// Fuzz target for files of `maestro fleet`: cells and jobs. A few jobs of each accepted file are simulated.
#include <algorithm>
#include <cmath>

#include "apps/fleet/fleet_figures.hpp"
#include "fuzz_target.hpp"

namespace maestro::fuzz {
namespace {

constexpr std::int64_t most_jobs = 12;

FleetCluster cluster() {
  return {.name = "cluster",
          .pools = {{.kind = "h100", .hosts = 4, .devices_of_host = 8, .price_per_hour = 40, .memory_bytes = 8e10}}};
}

JobCells few_cells() {
  JobCells made;
  for (std::int64_t devices = 1; devices <= 32; devices *= 2) {
    made.cells.push_back({.kind = "h100",
                          .devices = devices,
                          .step_ms = 1000.0 / static_cast<double>(devices) + 100,
                          .busy = 0.7,
                          .bytes = 1e10});
  }
  return made;
}

void simulate(FleetJobs jobs) {
  jobs.jobs = std::min(jobs.jobs, most_jobs);
  const std::vector<FleetJob> drawn = drawn_jobs(jobs, jobs.seed);
  const std::vector<FleetCurve> curves = curves_of(jobs, cluster());
  for (const FleetPolicy policy : {FleetPolicy::fixed, FleetPolicy::cells}) {
    const FleetResult result =
        simulate_fleet(cluster(), curves, drawn, {.policy = policy, .pack = true, .move_s = jobs.move_s});
    const FleetFigures figures = figures_of(cluster(), jobs, result);
    require(figures.all.jobs == jobs.jobs, "every job ends");
    require(std::isfinite(figures.all.mean_completion_s) && figures.all.mean_completion_s >= 0, "times are times");
    require(figures.pools[0].in_use <= 1 + 1e-9, "no more devices are in use than there are");
  }
}

void simulate_cells(JobCells cells) {
  FleetJobKind kind;
  kind.kind = cells.cells.front().kind;
  kind.devices = cells.cells.front().devices;
  kind.most_steps = 1000;
  kind.cells = std::move(cells);
  FleetJobs jobs{.jobs = most_jobs, .mean_between_s = 60, .move_s = 30, .kinds = {kind}};
  simulate(std::move(jobs));
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::string text(fuzz::text_of(data, size));
  fuzz::accepts([&] { fuzz::simulate_cells(parse_cells(text, "cells.json")); });
  fuzz::accepts([&] {
    fuzz::simulate(parse_fleet_jobs(text, "jobs.toml", [](const std::string& /*file*/) { return fuzz::few_cells(); }));
  });
  return 0;
}
