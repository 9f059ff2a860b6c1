// SPDX-License-Identifier: Apache-2.0
// Layouts of ClusterLanes whose replicas are on several pools.
#include <algorithm>
#include <cmath>
#include <limits>

#include "actors/layouts/cluster_lanes.hpp"

namespace maestro {

namespace {

constexpr std::int64_t few_replicas = 16;  // of which every number is tried
constexpr std::size_t few_pools = 2;
constexpr std::int64_t parts_of_many = 8;
constexpr double rounding = 1e-9;

/// Returns the numbers of replicas that are tried on a pool, from the most to 0: multiples of `of`.
std::vector<std::int64_t> counts_from(std::int64_t most, std::int64_t of, std::size_t pools) {
  const std::int64_t multiples = most / of;
  const std::int64_t parts =
      multiples <= few_replicas && pools <= few_pools ? multiples : std::min(multiples, parts_of_many);
  std::vector<std::int64_t> counts;
  for (std::int64_t part = parts; part > 0; --part) counts.push_back(multiples * part / parts * of);
  counts.push_back(0);
  return counts;
}

}  // namespace

std::vector<PoolShare> ClusterLayout::shares() const {
  std::vector<PoolShare> all{{pool, layout.replicas, rate}};
  for (const PoolShare& share : more) {
    all.front().replicas -= share.replicas;
    all.push_back(share);
  }
  return all;
}

DescribedPrices exchange_prices(const DescribedCluster& cluster, std::span<const PoolShare> shares) {
  DescribedPool ring = cluster.pools[shares.front().pool];
  ring.network = {std::numeric_limits<double>::infinity(), 0};
  ring.devices_of_host = 1;
  const auto pass = [&](const DescribedLink& link, std::int64_t devices_of_host) {
    const double share = link.bytes_per_ms / static_cast<double>(devices_of_host);
    ring.network.bytes_per_ms = std::min(ring.network.bytes_per_ms, share);
    ring.network.latency_ms = std::max(ring.network.latency_ms, link.latency_ms);
  };
  for (const PoolShare& share : shares) {
    const DescribedPool& pool = cluster.pools[share.pool];
    pass(pool.network, pool.devices_of_host);
    if (shares.size() > 1 && cluster.between) pass(*cluster.between, pool.devices_of_host);
  }
  return DescribedPrices(std::move(ring));
}

void ClusterLanes::relate(std::span<Lane> lanes) {
  double shared_work = 0;
  const bool related = lanes.size() > 1 && std::ranges::all_of(lanes, [&](const Lane& lane) {
                         return lane.slowest == lanes.front().slowest && lane.work_ms > 0;
                       });
  for (std::size_t batch = 0; related && batch < lanes.front().batch_ms.size(); ++batch) {
    double least = std::numeric_limits<double>::infinity();
    for (const Lane& lane : lanes) least = std::min(least, lane.batch_ms[batch] / lane.work_ms);
    shared_work += least;
  }
  for (Lane& lane : lanes) {
    lane.shared_work = shared_work;
    lane.batch_ms = {};
  }
}

std::optional<ClusterLayout> ClusterLanes::across(const std::vector<Part>& parts, bool zero, double most_ms) const {
  const Lane& first = *parts.front().lane;
  std::int64_t replicas = 0;
  double rate = 0;  // steps in a millisecond
  double ends = 0;
  double optimizer_ms = 0;
  double fill_ms = std::numeric_limits<double>::infinity();
  double longest_ms = fill_ms;
  for (const auto& [lane, count] : parts) {
    const double of_part = static_cast<double>(count) / lane->work_ms;
    replicas += count;
    rate += of_part;
    ends += of_part * lane->end_ms;
    optimizer_ms = std::max(optimizer_ms, lane->optimizer_ms);
    fill_ms = std::min(fill_ms, lane->fill_ms);
    longest_ms = std::min(longest_ms, lane->longest_ms);
  }
  const double passes_ms = std::max(first.shared_work / rate, all_batches_ms(parts));
  const bool shards = zero && replicas > 1;
  const double members = shards ? static_cast<double>(replicas) : 1;
  ClusterLayout on;
  on.work_ms = std::max(passes_ms + fill_ms, longest_ms) + ends / rate + optimizer_ms / members;
  if (on.work_ms > most_ms) return std::nullopt;
  on.layout = first.layout;
  on.layout.replicas = replicas;
  on.layout.zero = shards;
  on.pool = first.pool;
  on.rate = first.units / first.work_ms;
  for (const auto& [lane, count] : parts) {
    if (lane != &first) on.more.push_back({lane->pool, count, lane->units / lane->work_ms});
    const double state = lane->state_bytes / members;
    on.bytes = std::max(on.bytes, lane->other_bytes + state);
    on.resting_bytes = std::max(on.resting_bytes, lane->resting_bytes + state);
    on.pass_bytes = std::max(on.pass_bytes, lane->pass_bytes);
    if (on.bytes > headroom_ * cluster_->pools[lane->pool].memory_bytes) return std::nullopt;
  }
  on.bound_ms = on.work_ms + 2 * exchange_prices(*cluster_, on.shares()).exchange_ms(first.gradient_bytes, replicas);
  return on.bound_ms <= most_ms ? std::optional(on) : std::nullopt;
}

/// Each step of the search ends at the next time at which some lane has done a micro-batch more.
double ClusterLanes::all_batches_ms(const std::vector<Part>& parts) {
  double rate = 0;
  for (const auto& [lane, count] : parts) rate += static_cast<double>(count) / lane->shortest_ms;
  const std::int64_t batches = parts.front().lane->batches;
  double time_ms = static_cast<double>(batches) / rate;
  while (true) {
    std::int64_t done = 0;
    double next_ms = std::numeric_limits<double>::infinity();
    for (const auto& [lane, count] : parts) {
      const double whole = std::floor(time_ms / lane->shortest_ms + rounding);
      done += count * static_cast<std::int64_t>(whole);
      next_ms = std::min(next_ms, (whole + 1) * lane->shortest_ms);
    }
    if (done >= batches) return time_ms;
    time_ms = next_ms;
  }
}

std::optional<ClusterLayout> ClusterLanes::spread(const std::string& section, std::span<const std::int64_t> devices,
                                                  double most_ms,
                                                  const std::function<bool(const ClusterLayout&)>& allowed) const {
  std::optional<ClusterLayout> best;
  const auto consider = [&](const std::vector<Part>& parts) {
    for (const bool zero : zero_choices(section)) {
      const auto on = across(parts, zero, most_ms);
      if (!on || (best && on->bound_ms >= best->bound_ms) || !allowed(*on)) continue;
      best = on;
      most_ms = on->bound_ms;
    }
  };
  const std::vector<Lane>& lanes = lanes_.at(section);
  const auto most_of = [&](const Lane& lane) {
    return std::max<std::int64_t>(0, std::min(devices[lane.pool] / lane.devices(), lane.batches));
  };
  for (std::size_t first = 0, end = 0; first < lanes.size(); first = end) {
    double rate = 0;  // of all devices
    for (; end < lanes.size() && lanes[end].layout == lanes[first].layout; ++end) {
      rate += static_cast<double>(most_of(lanes[end])) / lanes[end].work_ms;
    }
    if (!(lanes[first].shared_work > 0) || lanes[first].shared_work > most_ms * rate) continue;
    std::vector<Part> parts;
    const std::function<void(std::size_t, std::int64_t)> extend = [&](std::size_t at, std::int64_t left) {
      if (at == end) {
        if (parts.size() > 1) consider(parts);
        return;
      }
      for (const std::int64_t count : counts_from(most_of(lanes[at]), multiple_of(lanes[at]), end - first)) {
        if (count > left) continue;
        if (count > 0) parts.push_back({&lanes[at], count});
        extend(at + 1, left - count);
        if (count > 0) parts.pop_back();
      }
    };
    extend(first, lanes[first].batches);
  }
  return best;
}

}  // namespace maestro
