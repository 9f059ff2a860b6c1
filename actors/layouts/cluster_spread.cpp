// SPDX-License-Identifier: Apache-2.0
// Layouts of ClusterPlanner in which a section has replicas on several pools.
#include <algorithm>

#include "actors/layouts/cluster_places.hpp"
#include "actors/layouts/cluster_planner.hpp"

namespace maestro {

namespace {
constexpr double precision = 1e-4;       // of a bisection, of the time
constexpr double worth_spreading = 1.5;  // bounds of layouts on single pools, by the fastest step so far
}  // namespace

bool ClusterPlanner::may_spread(const std::vector<std::string>& group) const {
  return group.size() == 1 && keys_.of(group.front()).contains("replicas") && !gives_speed(group.front());
}

std::optional<ClusterLayouts> ClusterPlanner::spread_over(const Candidate& base, std::size_t group,
                                                          double most_ms) const {
  const std::vector<std::int64_t> all = all_devices();
  std::vector<std::int64_t> left = all;
  ClusterLayouts layouts;
  const std::vector<std::vector<std::string>>& groups = base.division.groups;
  for (std::size_t other = 0; other < groups.size(); ++other) {
    if (other == group) continue;
    const std::size_t pool = base.allocation.sections[other].pool;
    const auto shared = shared_by(base.division, other, pool, most_ms, all);
    if (!shared || shared->devices > left[pool]) return std::nullopt;
    left[pool] -= shared->devices;
    for (std::size_t at = 0; at < groups[other].size(); ++at) {
      layouts[groups[other][at]] = shared->layouts[at];
      layouts[groups[other][at]].group = other;
    }
  }
  ClusterLayout& on = layouts[groups[group].front()];
  const auto fits = [&](const ClusterLayout& tried) {
    on = tried;
    on.group = group;
    return ClusterPlaces(cluster_, layouts).price_per_hour() <= options_.most_per_hour;
  };
  const auto spread = lanes_.spread(groups[group].front(), left, most_ms, fits);
  if (!spread) return std::nullopt;
  on = *spread;
  on.group = group;
  return layouts;
}

std::optional<ClusterLayouts> ClusterPlanner::best_spread(const Candidate& base, double most_ms) const {
  std::optional<ClusterLayouts> best;
  const auto try_within = [&](std::size_t group, double ms) {
    auto made = spread_over(base, group, ms);
    if (!made) return false;
    most_ms = base.division.sharing.exchanges > 0 ? ms : bound_of(*made);
    best = std::move(made);
    return true;
  };
  for (std::size_t group = 0; group < base.division.groups.size(); ++group) {
    if (!may_spread(base.division.groups[group]) || !try_within(group, most_ms)) continue;
    // The others need more devices for a shorter step.
    double low = base.division.groups.size() == 1 ? most_ms : 0;
    while (most_ms - low > precision * most_ms) {
      const double middle = (low + most_ms) / 2;
      if (!try_within(group, middle)) low = middle;
    }
  }
  return best;
}

double ClusterPlanner::bound_of(const ClusterLayouts& layouts) {
  double bound_ms = 0;
  std::map<std::size_t, double> work_ms;  // of a device of each group
  for (const auto& [section, on] : layouts) {
    bound_ms = std::max({bound_ms, on.bound_ms, work_ms[on.group] += on.work_ms});
  }
  return bound_ms;
}

ClusterPlanner::Tried ClusterPlanner::spread(Tried best, const std::vector<Candidate>& candidates,
                                             ClusterChoice& chosen) {
  if (cluster_.pools.size() < 2 || options_.cheapest) return best;
  const double most_bound_ms = best.played.step_ms * (1 - least_plan_gain);
  std::vector<Tried> worth;
  const auto add = [&](const Division& division, std::optional<ClusterLayouts> made) {
    if (!made || bound_of(*made) > most_bound_ms) return;
    const auto same = [&](const Tried& other) { return same_layouts(*made, other.layouts); };
    if (std::ranges::any_of(worth, same)) return;
    const auto spread = std::ranges::find_if(*made, [](const auto& entry) { return !entry.second.more.empty(); });
    worth.push_back(untried(text_of(division) + ", " + spread->first + " on several pools", *std::move(made)));
  };
  double least_ms = best.played.step_ms;
  const Candidate* shared = nullptr;  // with the least bound of those in which sections share devices
  for (const Candidate& candidate : candidates) {
    if (candidate.allocation.bound_ms > best.played.step_ms * worth_spreading) continue;
    const bool apart = candidate.division.groups.size() == keys_.sections().size();  // the first, if any
    auto made = best_spread(candidate, least_ms);
    if (!made) continue;
    const double bound_ms = bound_of(*made);
    chosen.least_bound_ms = std::min(chosen.least_bound_ms, bound_ms);
    if (apart) {
      chosen.apart_bound_ms = std::min(chosen.apart_bound_ms, bound_ms);
      add(candidate.division, std::move(made));
    } else {
      least_ms = bound_ms;
      shared = &candidate;
    }
  }
  if (shared != nullptr) {
    for (const Division& variant : variants_of(shared->division)) {
      add(variant, best_spread({variant, shared->allocation, 0, {}}, most_bound_ms));
    }
  }
  if (worth.empty()) return best;
  // Replicas on several pools have speeds, and plans compare them with other sections; so these have theirs, too.
  keys_of_run_.speeds = true;
  double most_ms = std::min(best.played.step_ms, play(best.layouts).step_ms) * (1 - least_plan_gain);
  bool faster = false;
  for (Tried& tried : worth) {
    tried.played = play_in_flight(tried.layouts);
    const bool gains = tried.played.step_ms <= most_ms;
    const Tried& rival = gains ? best : tried;
    add_rival(rival, rival.played.step_ms);
    if (!gains) continue;
    most_ms = tried.played.step_ms;
    best = std::move(tried);
    faster = true;
  }
  keys_of_run_.speeds = faster;
  return best;
}

}  // namespace maestro
