// SPDX-License-Identifier: Apache-2.0
// Layouts of ClusterLanes whose sections share devices.
#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

#include "actors/layouts/cluster_lanes.hpp"
#include "actors/layouts/cluster_places.hpp"

namespace maestro {

namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();
}  // namespace

const std::vector<ClusterLanes::Sharer>& ClusterLanes::worthwhile(const std::string& section, std::size_t pool,
                                                                  std::int64_t devices, const Sharing& sharing) const {
  const auto [known, fresh] = sharers_.try_emplace({section, pool, devices, sharing.staged, sharing.exchanges});
  if (!fresh) return known->second;
  const bool given = !keys_->of(section).contains("replicas");
  std::vector<Sharer> sharers;
  for (const Lane& lane : lanes_.at(section)) {
    if (lane.pool != pool || lane.devices() > devices || (lane.layout.pipeline > 1 && !sharing.staged)) continue;
    const std::int64_t of = given ? given_replicas(section) : multiple_of(lane);
    const std::int64_t most = std::min(devices / lane.devices(), lane.batches) / of;
    if (most < 1) continue;
    const std::int64_t replicas = given ? of : most * of;
    for (const bool zero : zero_choices(section)) {
      if (const auto on = this->on(lane, replicas, zero)) {
        sharers.push_back({*on, on->work_ms + sharing.exchanges * (on->bound_ms - on->work_ms)});
      }
    }
  }
  std::ranges::stable_sort(
      sharers, {}, [](const Sharer& each) { return std::tuple(each.busy_ms, each.on.bound_ms, each.on.bytes); });
  std::vector<Sharer>& kept = known->second;
  for (Sharer& sharer : sharers) {
    const auto rules_out = [&](const Sharer& other) {
      return other.on.bound_ms <= sharer.on.bound_ms && other.on.bytes <= sharer.on.bytes;
    };
    if (std::ranges::none_of(kept, rules_out)) kept.push_back(std::move(sharer));
  }
  return kept;
}

std::optional<SharedDevices> ClusterLanes::together(const std::vector<std::string>& sections, std::size_t pool,
                                                    std::int64_t devices, const Sharing& sharing) const {
  const double most_bytes = headroom_ * cluster_->pools[pool].memory_bytes;
  std::vector<const std::vector<Sharer>*> choices;
  for (const std::string& section : sections) choices.push_back(&worthwhile(section, pool, devices, sharing));
  if (std::ranges::any_of(choices, [](const auto* each) { return each->empty(); })) return std::nullopt;
  std::vector<double> rest_ms(sections.size() + 1);  // the least of the sections from each on
  for (std::size_t at = sections.size(); at-- > 0;) rest_ms[at] = rest_ms[at + 1] + choices[at]->front().busy_ms;
  std::optional<SharedDevices> best;
  double best_ms = infinity;
  SharedDevices made;
  const std::function<void(double, double, double)> extend = [&](double bytes, double busy_ms, double longest_ms) {
    const std::size_t at = made.layouts.size();
    if (std::max(busy_ms + rest_ms[at], longest_ms) >= best_ms) return;
    if (at == sections.size()) {
      best = made;
      best_ms = best->expected_ms = std::max(busy_ms, longest_ms);
      best->bound_ms = longest_ms;
      return;
    }
    for (const auto& [on, own_ms] : *choices[at]) {
      if (busy_ms + own_ms + rest_ms[at + 1] >= best_ms) break;  // so do all that are busier
      if (bytes + on.bytes > most_bytes) continue;
      made.layouts.push_back(on);
      extend(bytes + on.bytes, busy_ms + own_ms, std::max(longest_ms, on.bound_ms));
      made.layouts.pop_back();
    }
  };
  extend(0, 0, 0);
  if (!best) return std::nullopt;
  double work_ms = 0;
  std::vector<const SectionLayout*> layouts;
  for (const ClusterLayout& on : best->layouts) {
    work_ms += on.work_ms;
    layouts.push_back(&on.layout);
  }
  best->bound_ms = std::max(best->bound_ms, work_ms);
  best->devices = devices_together(layouts);
  return best->devices <= devices ? best : std::nullopt;
}

std::optional<SharedDevices> ClusterLanes::fewest(const std::vector<std::string>& sections, std::size_t pool,
                                                  double most_ms, std::int64_t most_devices,
                                                  const Sharing& sharing) const {
  if (sections.size() == 1) {
    const auto alone = fewest(sections.front(), pool, most_ms, most_devices);
    if (!alone) return std::nullopt;
    return SharedDevices{{*alone}, alone->layout.devices(), alone->bound_ms, alone->bound_ms};
  }
  std::int64_t low = 1;
  std::int64_t high = most_devices;
  const auto on = [&](std::int64_t devices) {
    auto shared = together(sections, pool, devices, sharing);
    return shared && shared->expected_ms <= most_ms ? shared : std::nullopt;
  };
  std::optional<SharedDevices> best = on(high);
  while (best && low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (auto fewer = on(middle)) {
      best = std::move(fewer);
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return best;
}

}  // namespace maestro
