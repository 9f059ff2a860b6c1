// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/cluster_lanes.hpp"

#include <algorithm>
#include <functional>
#include <tuple>

#include "apps/plan/cluster_places.hpp"

namespace maestro {

namespace {
constexpr std::int64_t least_multiples = 32;  // numbers of replicas to choose from
constexpr double nearly = 1.001;
}  // namespace

std::int64_t ClusterLanes::multiple_of(const ClusterLane& lane) const {
  const std::int64_t most = std::min(catalogue_->cluster().pools[lane.pool].devices() / lane.devices(), lane.batches);
  std::int64_t of = std::max<std::int64_t>(1, std::min(parts_, most / least_multiples));
  while (parts_ % of != 0) --of;
  return of;
}

std::optional<ClusterLayout> ClusterLanes::on(const ClusterLane& lane, std::int64_t replicas, bool zero) const {
  const auto members = static_cast<double>(replicas);
  const bool shards = zero && replicas > 1;
  ClusterLayout on;
  on.layout = lane.layout;
  on.layout.replicas = replicas;
  on.layout.zero = shards;
  on.pool = lane.pool;
  const double state = lane.state_bytes / (shards ? members : 1);
  on.bytes = lane.other_bytes + state;
  on.resting_bytes = lane.resting_bytes + state;
  on.pass_bytes = lane.pass_bytes;
  if (on.bytes > catalogue_->most_bytes(lane.pool)) return std::nullopt;
  const double exchange = 2 * catalogue_->prices(lane.pool).exchange_ms(lane.gradient_bytes, replicas, lane.devices());
  const double end = lane.end_ms + exchange + lane.optimizer_ms / (shards ? members : 1);
  const std::int64_t rounds = (lane.batches + replicas - 1) / replicas;  // of the replica with most micro-batches
  const double passes = std::max(lane.work_ms / members, static_cast<double>(rounds) * lane.shortest_ms);
  on.rate = lane.work_ms > 0 ? lane.units / lane.work_ms : 0;
  on.work_ms = lane.work_ms / members + lane.end_ms + lane.optimizer_ms / (shards ? members : 1);
  on.bound_ms = std::max(passes + lane.fill_ms, lane.longest_ms) + end;
  return on;
}

std::optional<ClusterLayout> ClusterLanes::fewest(const std::string& section, std::size_t pool, double most_ms,
                                                  std::int64_t most_devices) const {
  std::optional<ClusterLayout> best;
  const std::optional<std::int64_t> given = catalogue_->given_replicas(section);
  const auto better = [&](const ClusterLayout& on) {
    if (!best) return true;
    const auto devices = on.layout.devices() - best->layout.devices();
    return devices != 0 ? devices < 0 : on.bound_ms < best->bound_ms;
  };
  for (const ClusterLane& lane : catalogue_->of(section)) {
    if (lane.pool != pool) continue;
    const std::int64_t of = given ? *given : multiple_of(lane);
    const std::int64_t most = std::min(most_devices / lane.devices(), lane.batches) / of;  // no replica is without work
    for (const bool zero : catalogue_->zero_choices(section)) {
      std::int64_t low = 1;
      std::int64_t high = given ? low : most;
      if (low > most) continue;
      const auto fits = [&](std::int64_t multiple) {
        const auto layout = on(lane, multiple * of, zero);
        return layout && layout->bound_ms <= most_ms;
      };
      if (!fits(high)) continue;  // more replicas are faster, but for their exchange
      while (low < high) {
        const std::int64_t middle = (low + high) / 2;
        fits(middle) ? high = middle : low = middle + 1;
      }
      const auto found = on(lane, low * of, zero);
      if (found && better(*found)) best = found;
    }
  }
  return best;
}

const ClusterLane* ClusterLanes::lane_of(const std::string& section, const ClusterLayout& on) const {
  SectionLayout one = on.layout;
  one.replicas = 1;
  one.zero = false;
  const std::vector<ClusterLane>& lanes = catalogue_->of(section);
  const auto same = [&](const ClusterLane& lane) { return lane.pool == on.pool && lane.layout == one; };
  const auto found = std::ranges::find_if(lanes, same);
  return found == lanes.end() ? nullptr : &*found;
}

std::optional<ClusterLayout> ClusterLanes::changed(const std::string& section, const ClusterLayout& on,
                                                   const SectionLayout& layout) const {
  ClusterLayout other = on;
  other.layout = layout;
  const ClusterLane* const lane = lane_of(section, other);
  if (lane == nullptr || lane->batches < on.layout.replicas) return std::nullopt;
  auto made = this->on(*lane, on.layout.replicas, on.layout.zero);
  if (made && on.in_flight > 0) made->keep_in_flight(on.in_flight * layout.chunks / on.layout.chunks);
  if (made) made->group = on.group;
  return made;
}

std::optional<ClusterLayout> ClusterLanes::grown(const std::string& section, const ClusterLayout& on,
                                                 std::int64_t more_devices) const {
  const ClusterLane* const lane = lane_of(section, on);
  const std::int64_t replicas = on.layout.replicas;
  std::int64_t more = std::max<std::int64_t>(1, replicas / 16);
  const std::int64_t rounds = (lane->batches + replicas - 1) / replicas;
  const bool alike = lane->longest_ms <= lane->shortest_ms * static_cast<double>(on.layout.pipeline) * nearly;
  if (alike && rounds > 1) more = std::max(more, (lane->batches + rounds - 2) / (rounds - 1) - replicas);
  if (const std::int64_t of = multiple_of(*lane); replicas % of == 0) more = (more + of - 1) / of * of;
  if (more * lane->devices() > more_devices || on.layout.replicas + more > lane->batches) return std::nullopt;
  auto grown = this->on(*lane, on.layout.replicas + more, on.layout.zero);
  if (grown && on.in_flight > 0) grown->keep_in_flight(on.in_flight);
  return grown;
}

const std::vector<ClusterLanes::Sharer>& ClusterLanes::worthwhile(const std::string& section, std::size_t pool,
                                                                  std::int64_t devices, const Sharing& sharing) const {
  const auto [known, fresh] = sharers_.try_emplace({section, pool, devices, sharing.staged, sharing.exchanges});
  if (!fresh) return known->second;
  const std::optional<std::int64_t> given = catalogue_->given_replicas(section);
  std::vector<Sharer> sharers;
  for (const ClusterLane& lane : catalogue_->of(section)) {
    if (lane.pool != pool || lane.devices() > devices || (lane.layout.pipeline > 1 && !sharing.staged)) continue;
    const std::int64_t of = given ? *given : multiple_of(lane);
    const std::int64_t most = std::min(devices / lane.devices(), lane.batches) / of;
    if (most < 1) continue;
    const std::int64_t replicas = given ? of : most * of;
    for (const bool zero : catalogue_->zero_choices(section)) {
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
  const double most_bytes = catalogue_->most_bytes(pool);
  std::vector<const std::vector<Sharer>*> choices;
  for (const std::string& section : sections) choices.push_back(&worthwhile(section, pool, devices, sharing));
  if (std::ranges::any_of(choices, [](const auto* each) { return each->empty(); })) return std::nullopt;
  std::vector<double> rest_ms(sections.size() + 1);  // the least of the sections from each on
  for (std::size_t at = sections.size(); at-- > 0;) rest_ms[at] = rest_ms[at + 1] + choices[at]->front().busy_ms;
  std::optional<SharedDevices> best;
  double best_ms = infinite;
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
