// SPDX-License-Identifier: Apache-2.0
// Keys of the run beside the layouts that ClusterPlanner sets: relative speeds and slots.
#include <algorithm>
#include <cmath>

#include "actors/layouts/cluster_planner.hpp"

namespace maestro {

namespace {
constexpr double least_speed = 0.001;  // that a job can have
}

std::vector<std::string> ClusterPlanner::run_settings(const ClusterLayouts& layouts) const {
  std::vector<std::string> settings;
  if (keys_of_run_.slots > 0) settings.push_back("transport.slots=" + std::to_string(keys_of_run_.slots));
  if (!keys_of_run_.speeds) return settings;
  double most = 0;
  for (const auto& [section, on] : layouts) most = std::max(most, on.rate);
  for (const auto& [section, on] : layouts) {
    const double speed = std::max(least_speed, std::round(on.rate / most * 1000) / 1000);
    if (base_.settings.contains(section + ".speed") || !(speed < 1)) continue;
    settings.push_back(section + ".speed=" + std::to_string(speed).substr(0, 5));
  }
  return settings;
}

PlayedLayouts ClusterPlanner::tuned(const ClusterLayouts& layouts, PlayedLayouts played) {
  double bound = 0;
  std::map<std::size_t, double> work_ms;  // of a device of each group
  for (const auto& [section, on] : layouts) bound = std::max({bound, on.bound_ms, work_ms[on.group] += on.work_ms});
  if (played.step_ms <= bound * (1 + options_.stall)) return played;
  RunKeys best = keys_of_run_;
  const auto try_keys = [&](RunKeys keys, double most_ms) {
    keys_of_run_ = keys;
    PlayedLayouts other = play(layouts);
    if (other.step_ms > most_ms) return false;
    played = std::move(other);
    best = keys;
    return true;
  };
  const RunKeys given = best;
  std::vector<RunKeys> others{{true, given.slots}};
  if (options_.slots) others.insert(others.end(), {{true, most_slots}, {false, most_slots}});
  for (const RunKeys& other : others) {
    if (other != given) (void)try_keys(other, played.step_ms * (1 - least_plan_gain));
  }
  for (std::int64_t fewer = best.slots / 2; best != given && fewer > base_.transport.slots; fewer /= 2) {
    if (!try_keys({best.speeds, fewer}, played.step_ms * (1 + least_plan_gain))) break;
  }
  keys_of_run_ = best;
  return played;
}

}  // namespace maestro
