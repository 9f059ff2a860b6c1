// SPDX-License-Identifier: Apache-2.0
// ClusterLanes::spread(): layouts with replicas on several pools.
#include <algorithm>
#include <cmath>

#include "apps/plan/cluster_lanes.hpp"

namespace maestro {

namespace {

constexpr std::int64_t few_replicas = 16;  // up to so many, every number is tried
constexpr std::size_t few_pools = 2;
constexpr std::int64_t parts_of_many = 8;
constexpr double rounding = 1e-9;

/// Returns the replica counts to try on a pool: multiples of `of`, from the most down to 0.
std::vector<std::int64_t> counts_from(std::int64_t most, std::int64_t of, std::size_t pools) {
  const std::int64_t multiples = most / of;
  const std::int64_t parts =
      multiples <= few_replicas && pools <= few_pools ? multiples : std::min(multiples, parts_of_many);
  std::vector<std::int64_t> counts;
  for (std::int64_t part = parts; part > 0; --part) counts.push_back(multiples * part / parts * of);
  counts.push_back(0);
  return counts;
}

struct LaneReplicas {
  const ClusterLane* lane = nullptr;
  std::int64_t replicas = 0;
};

/// Returns the least time for the lanes to do all micro-batches, if each were as short as the shortest. Each step of
/// the search ends when some lane has done one micro-batch more.
double all_batches_ms(const std::vector<LaneReplicas>& parts) {
  double rate = 0;
  for (const auto& [lane, count] : parts) rate += static_cast<double>(count) / lane->shortest_ms;
  const std::int64_t batches = parts.front().lane->batches;
  double time_ms = static_cast<double>(batches) / rate;
  while (true) {
    std::int64_t done = 0;
    double next_ms = infinite;
    for (const auto& [lane, count] : parts) {
      const double whole = std::floor(time_ms / lane->shortest_ms + rounding);
      done += count * static_cast<std::int64_t>(whole);
      next_ms = std::min(next_ms, (whole + 1) * lane->shortest_ms);
    }
    if (done >= batches) return time_ms;
    time_ms = next_ms;
  }
}

/// Returns the layout on several pools, with lanes of one layout; nothing if its bound is above `most_ms` or the memory
/// of a pool is too small.
std::optional<ClusterLayout> across(const LayoutCatalogue& catalogue, const std::vector<LaneReplicas>& parts, bool zero,
                                    double most_ms) {
  const ClusterLane& first = *parts.front().lane;
  std::int64_t replicas = 0;
  double rate = 0;  // steps in a millisecond
  double ends = 0;
  double optimizer_ms = 0;
  double fill_ms = infinite;
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
    if (on.bytes > catalogue.most_bytes(lane->pool)) return std::nullopt;
  }
  on.bound_ms = on.work_ms + 2 * exchange_prices(catalogue.cluster(), on.shares())
                                     .exchange_ms(first.gradient_bytes, replicas, first.devices());
  return on.bound_ms <= most_ms ? std::optional(on) : std::nullopt;
}

}  // namespace

std::optional<ClusterLayout> ClusterLanes::spread(const std::string& section, std::span<const std::int64_t> devices,
                                                  double most_ms,
                                                  const std::function<bool(const ClusterLayout&)>& allowed) const {
  std::optional<ClusterLayout> best;
  const auto consider = [&](const std::vector<LaneReplicas>& parts) {
    for (const bool zero : catalogue_->zero_choices(section)) {
      const auto on = across(*catalogue_, parts, zero, most_ms);
      if (!on || (best && on->bound_ms >= best->bound_ms) || !allowed(*on)) continue;
      best = on;
      most_ms = on->bound_ms;
    }
  };
  const std::vector<ClusterLane>& lanes = catalogue_->of(section);
  const auto most_of = [&](const ClusterLane& lane) {
    return std::max<std::int64_t>(0, std::min(devices[lane.pool] / lane.devices(), lane.batches));
  };
  for (std::size_t first = 0, end = 0; first < lanes.size(); first = end) {
    double rate = 0;  // of all devices
    for (; end < lanes.size() && lanes[end].layout == lanes[first].layout; ++end) {
      rate += static_cast<double>(most_of(lanes[end])) / lanes[end].work_ms;
    }
    if (!(lanes[first].shared_work > 0) || lanes[first].shared_work > most_ms * rate) continue;
    std::vector<LaneReplicas> parts;
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
