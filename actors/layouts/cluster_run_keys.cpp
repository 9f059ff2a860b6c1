// SPDX-License-Identifier: Apache-2.0
// Keys of the run beside the layouts that ClusterPlanner sets: relative speeds and slots.
#include <algorithm>
#include <cmath>
#include <utility>

#include "actors/layouts/cluster_planner.hpp"

namespace maestro {

namespace {

constexpr double least_speed = 0.001;  // that a job can have
constexpr double close_rival = 1.05;   // by rehearsed steps, of which keys may make the shorter one
constexpr std::size_t most_tuned = 2;  // beside the best

std::string speed_text(double speed) {
  return std::to_string(std::max(least_speed, std::round(speed * 1000) / 1000)).substr(0, 5);
}

}  // namespace

std::vector<std::string> ClusterPlanner::run_settings(const ClusterLayouts& layouts) const {
  std::vector<std::string> settings;
  for (const auto& [section, on] : layouts) {
    if (on.in_flight > 0) settings.push_back(section + ".max_in_flight=" + std::to_string(on.in_flight));
  }
  if (keys_of_run_.slots > 0) settings.push_back("transport.slots=" + std::to_string(keys_of_run_.slots));
  double most = 0;
  for (const auto& [section, on] : layouts) {
    for (const PoolShare& share : on.shares()) most = std::max(most, share.rate);
  }
  for (const auto& [section, on] : layouts) {
    const std::vector<PoolShare> shares = on.shares();
    if (gives_speed(section)) continue;
    if (!keys_of_run_.speeds && on.more.empty()) {
      if (options_.planned_speeds.contains(section)) settings.push_back(section + ".speed=1");
      continue;
    }
    if (!keys_of_run_.speeds) most = std::ranges::max(shares, {}, &PoolShare::rate).rate;
    std::vector<std::string> speeds;
    for (const PoolShare& share : shares) {
      speeds.insert(speeds.end(), static_cast<std::size_t>(share.replicas), speed_text(share.rate / most));
    }
    const std::string alone = speed_text(on.rate / most);
    if (!on.more.empty()) {
      settings.push_back(section + ".speed=" + list_text(speeds));
    } else if (alone != speed_text(1) || options_.planned_speeds.contains(section)) {
      settings.push_back(section + ".speed=" + alone);
    }
  }
  return settings;
}

PlayedLayouts ClusterPlanner::tuned(const ClusterLayouts& layouts, PlayedLayouts played) {
  if (played.step_ms <= bound_of(layouts) * (1 + options_.stall)) return played;
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

ClusterPlanner::Tried ClusterPlanner::tuned(Tried best) {
  best.played = tuned(best.layouts, std::move(best.played));
  if (options_.cheapest) return best;
  std::vector<RivalDivision> close;
  for (const RivalDivision& rival : rivals_) {
    if (rival.rehearsed && rival.step_ms <= best.played.step_ms * close_rival) close.push_back(rival);
  }
  std::ranges::stable_sort(close, {}, &RivalDivision::step_ms);
  close.resize(std::min(close.size(), most_tuned));
  for (const RivalDivision& rival : close) {
    const RunKeys before = std::exchange(keys_of_run_, {});
    PlayedLayouts played = tuned(rival.layouts, play(rival.layouts));
    if (played.step_ms > best.played.step_ms * (1 - least_plan_gain)) {
      keys_of_run_ = before;
      continue;
    }
    add_rival(best, best.played.step_ms);
    best = untried(rival.text, rival.layouts);
    best.played = std::move(played);
  }
  return best;
}

}  // namespace maestro
