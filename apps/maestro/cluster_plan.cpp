// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/cluster_plan.hpp"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "actors/layouts/cluster_planner.hpp"
#include "apps/maestro/padded.hpp"
#include "apps/maestro/planned_app.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/page/markup.hpp"

namespace maestro {

namespace {

using Json = nlohmann::ordered_json;

/// Resolves a job with every section on emulated devices.
JobPlan resolve_emulated(PlannedApp& job, std::vector<std::string> settings) {
  for (const std::string& section : job.sections()) {
    const std::string key = section + ".devices=";
    const bool set = std::ranges::any_of(settings, [&](const std::string& each) { return each.starts_with(key); });
    if (!set) settings.push_back(key + "[\"emulated\"]");
  }
  return job.resolve(settings, 0);
}

void print(const ClusterChoice& chosen, const DescribedCluster& cluster, const JobPlan& job,
           const PlanArguments& arguments) {
  std::cout << job.name << " on " << printable(cluster.name) << ": " << chosen.devices << " of " << cluster.devices()
            << " devices. " << chosen.priced << " layouts of sections priced, " << chosen.rehearsed
            << " rehearsals. All times are described, none is measured.\n"
            << "step      " << fixed(chosen.step_ms, 1) << " ms, "
            << fixed(static_cast<double>(job.train.global_batch) / chosen.step_ms * 1e3, 1) << " samples/s\n";
  std::size_t width = 9;
  for (const auto& [section, on] : chosen.sections) width = std::max(width, section.size() + 2);
  std::cout << padded("section", width) << "devices  bound ms  GiB   passes  step end  waits  layout\n";
  constexpr double gib = 1 << 30;
  for (const auto& [section, on] : chosen.sections) {
    double passes = 0;
    double ends = 0;
    std::int64_t stages = 0;
    for (const auto& [name, shares] : chosen.shares) {
      if (name != section && !name.starts_with(section + ".stage")) continue;
      passes += shares.passes;
      ends += shares.step_ends;
      ++stages;
    }
    const double count = static_cast<double>(std::max<std::int64_t>(stages, 1));
    const double waits = 1 - (passes + ends) / count;
    std::cout << padded(section, width) << padded(std::to_string(on.layout.devices()), 9)
              << padded(fixed(on.bound_ms, 1), 10) << padded(fixed(on.bytes / gib, 1), 6)
              << padded(percent(passes / count), 8) << padded(percent(ends / count), 10) << padded(percent(waits), 7)
              << layout_text(on.layout) << "\n";
  }
  std::cout << "bound     no layout with devices of its own for each section takes less than "
            << fixed(chosen.least_bound_ms, 1) << " ms; the choice is "
            << percent(chosen.step_ms / chosen.least_bound_ms - 1) << " above\n"
            << "critical  " << chosen.critical << ", which waits for others " << percent(chosen.stall)
            << " of the time";
  if (!arguments.kept.empty() && chosen.stall > arguments.stall) {
    std::cout << ", more than the " << percent(arguments.stall) << " that it may: the cluster has no room for more";
  }
  std::cout << "\n";
  if (cluster.price_per_hour > 0) {
    const auto hosts = static_cast<double>((chosen.devices + cluster.devices_of_host - 1) / cluster.devices_of_host);
    const double hours = chosen.step_ms / 3.6e6 / static_cast<double>(job.train.global_batch) * 1e6;
    std::cout << "price     " << fixed(hosts * cluster.price_per_hour, 2) << " an hour for " << fixed(hosts, 0)
              << " hosts, " << fixed(hosts * cluster.price_per_hour * hours, 2) << " for a million samples\n";
  }
  if (chosen.refused > 0) {
    std::cout << "refused   " << chosen.refused << " layouts, the first: " << printable(chosen.first_refusal) << "\n";
  }
}

Json json_of(const ClusterChoice& chosen, const DescribedCluster& cluster) {
  Json sections = Json::object();
  for (const auto& [section, on] : chosen.sections) {
    const SectionLayout& layout = on.layout;
    sections[section] = {{"devices", layout.devices()},       {"replicas", layout.replicas}, {"tensor", layout.tensor},
                         {"context", layout.context},         {"pipeline", layout.pipeline}, {"zero", layout.zero},
                         {"micro_batch", layout.micro_batch}, {"bound_ms", on.bound_ms},     {"bytes", on.bytes}};
  }
  return {{"cluster", cluster.name},
          {"devices", chosen.devices},
          {"step_ms", chosen.step_ms},
          {"bound_ms", chosen.bound_ms},
          {"least_bound_ms", chosen.least_bound_ms},
          {"critical", chosen.critical},
          {"stall", chosen.stall},
          {"priced", chosen.priced},
          {"refused", chosen.refused},
          {"rehearsed", chosen.rehearsed},
          {"sections", sections},
          {"settings", chosen.settings}};
}

}  // namespace

int plan_on_cluster(const PlanArguments& arguments, bool json, Console& console) {
  const DescribedCluster cluster = read_cluster(arguments.cluster);
  PlannedApp job(arguments, console);
  ClusterPlannerOptions options;
  options.varied.insert(arguments.varied.begin(), arguments.varied.end());
  options.varied.insert("devices");
  options.kept = arguments.kept;
  options.stall = arguments.stall;
  ClusterPlanner planner([&](const std::vector<std::string>& settings) { return resolve_emulated(job, settings); },
                         cluster, std::move(options));
  const ClusterChoice chosen = planner.choose();
  if (json) {
    std::cout << json_of(chosen, cluster).dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  } else {
    print(chosen, cluster, planner.base(), arguments);
  }
  job.write(chosen.settings, "Layouts chosen by `maestro plan` for " + cluster.name +
                                 ", a description: " + fixed(chosen.step_ms, 1) + " ms a step on " +
                                 std::to_string(chosen.devices) + " devices.");
  return 0;
}

}  // namespace maestro
