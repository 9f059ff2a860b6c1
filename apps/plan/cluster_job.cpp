// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/cluster_job.hpp"

#include <algorithm>
#include <cmath>

#include "apps/plan/cluster_part.hpp"
#include "apps/plan/cluster_places.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

constexpr std::size_t steps_to_rehearse = 5;  // besides the steps that sections are ahead
constexpr double least_speed = 0.001;         // that a job can have

std::string speed_text(double speed) {
  return std::to_string(std::max(least_speed, std::round(speed * 1000) / 1000)).substr(0, 5);
}

}  // namespace

ClusterJob::ClusterJob(LayoutCatalogue::Resolve resolve_job, DescribedCluster described, ClusterPlannerOptions given)
    : resolve([resolve_job = std::move(resolve_job), further = given.settings](std::vector<std::string> settings) {
        settings.insert(settings.begin(), further.begin(), further.end());
        return resolve_job(settings);
      }),
      cluster(std::move(described)),
      options(std::move(given)),
      base(resolve({})),
      keys(base, options.varied),
      units(first_steps(base, steps_to_rehearse + static_cast<std::size_t>(base.train.ahead) + 1)),
      equal_samples(maestro::equal_samples(units)) {
  check_options();
}

void ClusterJob::check_options() const {
  if ((options.cheapest || options.most_per_hour < infinite) && !cluster.priced()) {
    throw JobError(printable(cluster.name) + ": a plan by its cost needs price_per_hour of all hosts");
  }
  if (options.kept.empty()) return;
  const std::vector<std::string>& sections = keys.sections();
  if (std::ranges::find(sections, options.kept) == sections.end()) {
    const auto nearest = nearest_name(options.kept, sections);
    throw JobError("--extra " + printable(options.kept) + ": not a section of the job" +
                   (nearest ? "; did you mean " + *nearest + "?" : ""));
  }
  if (keys.of(options.kept).contains("replicas")) {
    throw JobError("--extra " + options.kept + ": the critical section keeps its devices, and the job gives no " +
                   options.kept + ".replicas");
  }
}

bool ClusterJob::gives_speed(const std::string& section) const {
  return base.settings.contains(section + ".speed") && !options.planned_speeds.contains(section);
}

bool ClusterJob::has_parts() const {
  return equal_samples && std::ranges::all_of(keys.sections(), [&](const std::string& section) {
           return keys.of(section).contains("replicas") && !gives_speed(section);
         });
}

std::vector<std::int64_t> ClusterJob::devices_of_pools() const {
  std::vector<std::int64_t> devices;
  for (const DescribedPool& pool : cluster.pools) devices.push_back(pool.devices());
  return devices;
}

std::vector<std::string> ClusterJob::run_settings(const ClusterLayouts& layouts, const PlannedRunKeys& run) const {
  std::vector<std::string> settings;
  for (const auto& [section, on] : layouts) {
    if (on.in_flight > 0) settings.push_back(section + ".max_in_flight=" + std::to_string(on.in_flight));
  }
  if (run.slots > 0) settings.push_back("transport.slots=" + std::to_string(run.slots));
  double most = 0;
  for (const auto& [section, on] : layouts) {
    for (const PoolShare& share : on.shares()) most = std::max(most, share.rate);
  }
  for (const auto& [section, on] : layouts) {
    const std::vector<PoolShare> shares = on.shares();
    if (gives_speed(section)) continue;
    if (!run.speeds && on.more.empty()) {
      if (options.planned_speeds.contains(section)) settings.push_back(section + ".speed=1");
      continue;
    }
    if (!run.speeds) most = std::ranges::max(shares, {}, &PoolShare::rate).rate;
    std::vector<std::string> speeds;
    for (const PoolShare& share : shares) {
      speeds.insert(speeds.end(), static_cast<std::size_t>(share.replicas), speed_text(share.rate / most));
    }
    const std::string alone = speed_text(on.rate / most);
    if (!on.more.empty()) {
      settings.push_back(section + ".speed=" + list_text(speeds));
    } else if (alone != speed_text(1) || options.planned_speeds.contains(section)) {
      settings.push_back(section + ".speed=" + alone);
    }
  }
  return settings;
}

std::vector<std::string> ClusterJob::rehearsed_settings(const ClusterLayouts& layouts,
                                                        const PlannedRunKeys& run) const {
  const ClusterPlaces places(cluster, layouts);
  std::vector<std::string> settings = run_settings(layouts, run);
  for (const auto& [section, on] : layouts) {
    const auto more =
        keys.settings_on(section, on.layout, places.shared(section) ? places.emulated_devices(section) : own_devices);
    settings.insert(settings.end(), more.begin(), more.end());
  }
  return settings;
}

std::vector<std::string> ClusterJob::placed_settings(const ClusterLayouts& layouts, const PlannedRunKeys& run) const {
  const ClusterPlaces places(cluster, layouts);
  std::vector<std::string> settings = options.settings;
  for (const std::string& section : keys.sections()) {
    const auto more = keys.settings(section, layouts.at(section).layout, places.cuda_devices(section));
    settings.insert(settings.end(), more.begin(), more.end());
    if (keys.of(section).contains("devices")) settings.push_back(section + ".processes=" + places.processes(section));
  }
  const auto of_run = run_settings(layouts, run);
  settings.insert(settings.end(), of_run.begin(), of_run.end());
  return settings;
}

}  // namespace maestro
