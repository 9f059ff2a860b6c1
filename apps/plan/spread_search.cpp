// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/spread_search.hpp"

#include <algorithm>

#include "apps/plan/cluster_places.hpp"
#include "apps/plan/trial_bench.hpp"

namespace maestro {

namespace {

constexpr double precision = 1e-4;       // share of the time at which the bisection ends
constexpr double worth_spreading = 1.5;  // ratio of a bound on single pools to the fastest step

class SpreadSearch {
 public:
  SpreadSearch(const ClusterJob& job, const Divisions& divisions) : job_(&job), divisions_(&divisions) {}

  /// Returns the layouts with the least bound, at most `most_ms`, with any of the groups on several pools.
  [[nodiscard]] std::optional<ClusterLayouts> best(const DivisionCandidate& base, double most_ms) const {
    std::optional<ClusterLayouts> best;
    const auto try_within = [&](std::size_t group, double ms) {
      auto made = over(base, group, ms);
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

 private:
  /// Returns whether a group is a section that may have replicas on several pools.
  [[nodiscard]] bool may_spread(const std::vector<std::string>& group) const {
    return group.size() == 1 && job_->keys.of(group.front()).contains("replicas") && !job_->gives_speed(group.front());
  }
  /// Returns layouts with a step of at most `most_ms` by bounds. The section of this group is on several pools, and the
  /// other groups have the fewest devices of the pools that `base` gives them.
  [[nodiscard]] std::optional<ClusterLayouts> over(const DivisionCandidate& base, std::size_t group,
                                                   double most_ms) const {
    const std::vector<std::int64_t> all = job_->devices_of_pools();
    std::vector<std::int64_t> left = all;
    ClusterLayouts layouts;
    const std::vector<std::vector<std::string>>& groups = base.division.groups;
    for (std::size_t other = 0; other < groups.size(); ++other) {
      if (other == group) continue;
      const std::size_t pool = base.allocation.sections[other].pool;
      const auto shared = divisions_->shared_by(base.division, other, pool, most_ms, all);
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
      return ClusterPlaces(job_->cluster, layouts).price_per_hour() <= job_->options.most_per_hour;
    };
    const auto spread = divisions_->lanes().spread(groups[group].front(), left, most_ms, fits);
    if (!spread) return std::nullopt;
    on = *spread;
    on.group = group;
    return layouts;
  }

  const ClusterJob* job_;
  const Divisions* divisions_;
};

}  // namespace

SpreadLayouts spread_layouts(const ClusterJob& job, const Divisions& divisions,
                             const std::vector<DivisionCandidate>& candidates, double step_ms) {
  const SpreadSearch search(job, divisions);
  const double most_bound_ms = step_ms * (1 - least_plan_gain);
  SpreadLayouts found;
  const auto add = [&](const Division& division, std::optional<ClusterLayouts> made) {
    if (!made || bound_of(*made) > most_bound_ms) return;
    const auto same = [&](const SpreadLayouts::Found& other) { return same_layouts(*made, other.layouts); };
    if (std::ranges::any_of(found.worth, same)) return;
    const auto spread = std::ranges::find_if(*made, [](const auto& entry) { return !entry.second.more.empty(); });
    found.worth.push_back({text_of(division) + ", " + spread->first + " on several pools", *std::move(made)});
  };
  double least_ms = step_ms;
  const DivisionCandidate* shared = nullptr;  // least bound with shared devices
  for (const DivisionCandidate& candidate : candidates) {
    if (candidate.allocation.bound_ms > step_ms * worth_spreading) continue;
    auto made = search.best(candidate, least_ms);
    if (!made) continue;
    const double bound_ms = bound_of(*made);
    found.least_bound_ms = std::min(found.least_bound_ms, bound_ms);
    if (candidate.division.groups.size() == job.keys.sections().size()) {  // the first, if any
      found.apart_bound_ms = std::min(found.apart_bound_ms, bound_ms);
      add(candidate.division, std::move(made));
    } else {
      least_ms = bound_ms;
      shared = &candidate;
    }
  }
  if (shared != nullptr) {
    for (const Division& variant : divisions.variants_of(shared->division)) {
      add(variant, search.best({variant, shared->allocation, 0, {}}, most_bound_ms));
    }
  }
  return found;
}

}  // namespace maestro
