// SPDX-License-Identifier: Apache-2.0
// `maestro fleet JOBS CLUSTER`: several jobs on a described cluster, in virtual time.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/fleet/fleet_figures.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/observe/padded.hpp"
#include "runtime/observe/printed_line.hpp"
#include "runtime/page/markup.hpp"

namespace maestro {

namespace {

struct FleetArguments {
  std::filesystem::path jobs;
  std::filesystem::path cluster;
  std::string policy = "cells";
  bool pack = false;
  std::optional<std::int64_t> seed;  ///< seed of the arrivals; none: as in the jobs file
  bool json = false;
};

using Json = nlohmann::ordered_json;

constexpr std::array assumptions{
    "a job runs at the pace of its cell, and its start takes no time; a part of a step counts",
    "devices of a kind are alike on all hosts, and jobs slow each other down only if they share devices",
    "jobs on shared devices slow down by the sum of their busy shares, if it is above 1",
};

std::string hours(double seconds) {
  return fixed(seconds / 3600, 2) + " h";
}

/// Prints rows as columns of their widest cells.
void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t at = 0; at < row.size(); ++at) widths[at] = std::max(widths[at], row[at].size() + 2);
  }
  for (const auto& row : rows) {
    PrintedLine line;
    for (std::size_t at = 0; at + 1 < row.size(); ++at) line << padded(row[at], widths[at]);
    line << row.back();
  }
}

/// A simulated fleet, with its files.
struct SimulatedFleet {
  const FleetArguments& arguments;
  const FleetCluster& cluster;
  const FleetJobs& jobs;
  std::uint64_t seed;
  const FleetResult& result;
  FleetFigures figures;
};

void print(const SimulatedFleet& fleet) {
  const FleetJobFigures& all = fleet.figures.all;
  const bool is_fixed = fleet.arguments.policy == "fixed";
  PrintedLine() << all.jobs << " jobs on " << printable(fleet.cluster.name) << ", " << fleet.cluster.devices()
                << " devices, "
                << (is_fixed ? "each with its fixed layout" : "each with the cells that are chosen for it")
                << (fleet.arguments.pack ? ", in pairs if that gains" : "") << ".";
  PrintedLine() << "A simulation: no job is run, and every time follows from cells.";
  PrintedLine() << "completion  " << hours(all.mean_completion_s) << " on average, including " << hours(all.mean_wait_s)
                << " before the start; 99% within " << hours(all.p99_completion_s);
  PrintedLine() << "makespan    " << hours(fleet.result.makespan_s);
  PrintedLine() << "moves       " << all.moves << ", of " << fixed(fleet.jobs.move_s, 1) << " s each";
  PrintedLine() << "shared      " << all.shared << " jobs shared devices with another";
  PrintedLine() << "spread      " << fleet.result.spread_placements << " of " << fleet.result.placements
                << " placements are on more hosts than they need";
  PrintedLine() << "";
  std::vector<std::vector<std::string>> pools{{"kind", "devices", "device hours", "in use", "price"}};
  for (const FleetPoolFigures& pool : fleet.figures.pools) {
    pools.push_back({printable(pool.kind), std::to_string(pool.devices), fixed(pool.device_hours, 1),
                     percent(pool.in_use), pool.price ? fixed(*pool.price, 2) : "-"});
  }
  print_table(pools);
  std::vector<std::vector<std::string>> kinds{{"job", "jobs", "waits", "completion", "99% within", "moves", "shared"}};
  for (const FleetJobFigures& kind : fleet.figures.kinds) {
    kinds.push_back({printable(kind.name), std::to_string(kind.jobs), hours(kind.mean_wait_s),
                     hours(kind.mean_completion_s), hours(kind.p99_completion_s), std::to_string(kind.moves),
                     std::to_string(kind.shared)});
  }
  PrintedLine() << "";
  print_table(kinds);
  PrintedLine() << "";
  for (const char* assumed : assumptions) PrintedLine() << "assumed     " << assumed;
  std::cout.flush();
}

Json json_of(const FleetJobFigures& figures) {
  return {{"jobs", figures.jobs},
          {"mean_wait_s", figures.mean_wait_s},
          {"mean_completion_s", figures.mean_completion_s},
          {"p99_completion_s", figures.p99_completion_s},
          {"moves", figures.moves},
          {"shared", figures.shared}};
}

Json json_of(const SimulatedFleet& fleet) {
  Json pools = Json::array();
  for (const FleetPoolFigures& pool : fleet.figures.pools) {
    pools.push_back({{"kind", pool.kind},
                     {"devices", pool.devices},
                     {"device_hours", pool.device_hours},
                     {"in_use", pool.in_use},
                     {"price", pool.price ? Json(*pool.price) : Json()}});
  }
  Json kinds = Json::object();
  for (const FleetJobFigures& kind : fleet.figures.kinds) kinds[kind.name] = json_of(kind);
  Json completed = Json::array();
  for (const FleetJobResult& job : fleet.result.jobs) {
    completed.push_back({{"job", fleet.jobs.kinds[job.job.kind].name},
                         {"steps", job.job.steps},
                         {"arrival_s", job.job.arrival_s},
                         {"start_s", job.start_s},
                         {"end_s", job.end_s},
                         {"moves", job.moves},
                         {"shared", job.packed}});
  }
  return {{"simulation", true},
          {"assumed", assumptions},
          {"cluster", fleet.cluster.name},
          {"policy", fleet.arguments.policy},
          {"pack", fleet.arguments.pack},
          {"seed", fleet.seed},
          {"move_s", fleet.jobs.move_s},
          {"makespan_s", fleet.result.makespan_s},
          {"placements", fleet.result.placements},
          {"spread_placements", fleet.result.spread_placements},
          {"all", json_of(fleet.figures.all)},
          {"kinds", kinds},
          {"pools", pools},
          {"completed", completed}};
}

int run_fleet(const FleetArguments& arguments, Console& /*console*/) {
  const FleetCluster cluster = fleet_cluster_of(read_cluster(arguments.cluster));
  const FleetJobs jobs = read_fleet_jobs(arguments.jobs);
  const std::vector<FleetCurve> curves = curves_of(jobs, cluster);
  const std::uint64_t seed = arguments.seed ? static_cast<std::uint64_t>(*arguments.seed) : jobs.seed;
  const FleetOptions options{.policy = arguments.policy == "fixed" ? FleetPolicy::fixed : FleetPolicy::cells,
                             .pack = arguments.pack,
                             .move_s = jobs.move_s};
  const FleetResult result = simulate_fleet(cluster, curves, drawn_jobs(jobs, seed), options);
  const SimulatedFleet fleet{arguments, cluster, jobs, seed, result, figures_of(cluster, jobs, result)};
  if (arguments.json) {
    std::cout << json_of(fleet).dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  } else {
    print(fleet);
  }
  return 0;
}

}  // namespace

void add_fleet(Commands& commands) {
  const auto [command, arguments] =
      commands.add("fleet", "simulate several jobs on a described cluster, by their cells", run_fleet);
  command.add_option("jobs", arguments.jobs, "jobs with their cells (TOML)")->required();
  command.add_option("cluster", arguments.cluster, "description of the cluster (TOML)")->required();
  command.add_option("--policy", arguments.policy, "fixed: layouts as given, by arrival; cells (default): chosen anew")
      ->check(CLI::IsMember({"fixed", "cells"}));
  command.add_flag("--pack", arguments.pack, "two jobs may share devices if that ends them earlier");
  command.add_option("--seed", arguments.seed, "seed of the arrivals (default: as in the jobs file)")
      ->check(whole_number(0));
  command.add_flag("--json", arguments.json, "print the figures as JSON");
}

}  // namespace maestro
