// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/cluster_layout.hpp"

#include <algorithm>
#include <tuple>

namespace maestro {

std::vector<PoolShare> ClusterLayout::shares() const {
  std::vector<PoolShare> all{{pool, layout.replicas, rate}};
  for (const PoolShare& share : more) {
    all.front().replicas -= share.replicas;
    all.push_back(share);
  }
  return all;
}

void ClusterLayout::keep_in_flight(std::int64_t batches) {
  in_flight = batches;
  bytes = resting_bytes + pass_bytes * static_cast<double>(batches);
}

bool same_layouts(const ClusterLayouts& one, const ClusterLayouts& other) {
  const auto of = [](const ClusterLayout& on) { return std::tie(on.layout, on.pool, on.more, on.group); };
  return std::ranges::equal(
      one, other, [&](const auto& a, const auto& b) { return a.first == b.first && of(a.second) == of(b.second); });
}

double bound_of(const ClusterLayouts& layouts) {
  double bound_ms = busiest_ms(layouts);
  for (const auto& [section, on] : layouts) bound_ms = std::max(bound_ms, on.bound_ms);
  return bound_ms;
}

double busiest_ms(const ClusterLayouts& layouts, const std::string& section, double longer) {
  std::map<std::size_t, double> work_ms;  // by group
  double most = 0;
  for (const auto& [name, on] : layouts) {
    most = std::max(most, work_ms[on.group] += on.work_ms * (name == section ? longer : 1));
  }
  return most;
}

DescribedPrices exchange_prices(const DescribedCluster& cluster, std::span<const PoolShare> shares) {
  DescribedPool ring = cluster.pools[shares.front().pool];
  if (shares.size() == 1) return DescribedPrices(std::move(ring));
  ring.network = {infinite, 0};
  ring.devices_of_host = 1;
  const auto pass = [&](const DescribedLink& link, std::int64_t devices_of_host) {
    const double share = link.bytes_per_ms / static_cast<double>(devices_of_host);
    ring.network.bytes_per_ms = std::min(ring.network.bytes_per_ms, share);
    ring.network.latency_ms = std::max(ring.network.latency_ms, link.latency_ms);
  };
  for (const PoolShare& share : shares) {
    const DescribedPool& pool = cluster.pools[share.pool];
    pass(pool.network, pool.devices_of_host);
    if (cluster.between) pass(*cluster.between, pool.devices_of_host);
  }
  return DescribedPrices(std::move(ring));
}

}  // namespace maestro
