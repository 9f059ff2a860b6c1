// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/cluster_places.hpp"

#include <algorithm>
#include <numeric>

#include "apps/plan/planned_keys.hpp"

namespace maestro {

namespace {

std::int64_t ranks_of(const SectionLayout& layout) {
  return layout.tensor * layout.context;
}

}  // namespace

std::int64_t devices_together(const std::vector<const SectionLayout*>& layouts) {
  std::int64_t most = 0;
  std::int64_t ranks = 1;
  for (const SectionLayout* const layout : layouts) {
    most = std::max(most, layout->devices());
    ranks = std::max(ranks, ranks_of(*layout));
  }
  return (most + ranks - 1) / ranks * ranks;
}

ClusterPlaces::ClusterPlaces(const DescribedCluster& cluster, const ClusterLayouts& layouts)
    : cluster_(&cluster), layouts_(&layouts), devices_(cluster.pools.size()), hosts_(cluster.pools.size()) {
  struct Group {
    const ClusterLayout* first = nullptr;
    std::int64_t ranks = 1;
    std::vector<const SectionLayout*> layouts;
    std::vector<std::string> sections;
  };
  std::map<std::size_t, Group> by_number;
  for (const auto& [section, on] : layouts) {
    Group& group = by_number[on.group];
    group.first = &on;
    group.ranks = std::max(group.ranks, ranks_of(on.layout));
    group.layouts.push_back(&on.layout);
    group.sections.push_back(section);
  }
  std::vector<const Group*> order;
  for (const auto& [number, group] : by_number) order.push_back(&group);
  std::ranges::stable_sort(order, std::greater(), &Group::ranks);  // then no host is left with a gap
  for (const Group* const group : order) {
    const bool shared = group->sections.size() > 1;
    for (const std::string& section : group->sections) shared_[section] = shared;
    for (const PoolShare& share : group->first->shares()) {
      for (const std::string& section : group->sections) first_[section].push_back(devices_[share.pool]);
      SectionLayout part = group->first->layout;
      part.replicas = share.replicas;
      devices_[share.pool] += shared ? devices_together(group->layouts) : devices_together({&part});
    }
  }
  for (std::size_t pool = 0; pool < hosts_.size(); ++pool) {
    const std::int64_t per_host = cluster.pools[pool].devices_of_host;
    hosts_[pool] = (devices_[pool] + per_host - 1) / per_host;
    price_per_hour_ += static_cast<double>(hosts_[pool]) * cluster.pools[pool].price_per_hour;
  }
}

template <class Seen>
void ClusterPlaces::every(const std::string& section, const Seen& seen) const {
  const ClusterLayout& on = layouts_->at(section);
  auto first = first_.at(section).begin();
  for (const PoolShare& share : on.shares()) {
    const auto pool = static_cast<std::ptrdiff_t>(share.pool);
    const std::int64_t host = std::accumulate(hosts_.begin(), hosts_.begin() + pool, std::int64_t{0});
    const std::int64_t before = std::accumulate(devices_.begin(), devices_.begin() + pool, std::int64_t{0});
    const std::int64_t per_host = cluster_->pools[share.pool].devices_of_host;
    const std::int64_t devices = on.layout.devices() / on.layout.replicas * share.replicas;
    for (std::int64_t at = 0; at < devices; ++at) {
      const std::int64_t device = *first + at;
      seen(Place{host + device / per_host, device % per_host, before + device}, at % ranks_of(on.layout) == 0);
    }
    ++first;
  }
}

std::int64_t ClusterPlaces::all_devices() const {
  return std::accumulate(devices_.begin(), devices_.end(), std::int64_t{0});
}

std::string ClusterPlaces::emulated_devices(const std::string& section) const {
  std::vector<int> devices;
  every(section, [&](const Place& place, bool) { devices.push_back(static_cast<int>(place.number)); });
  return devices_text("emulated", devices);
}

std::string ClusterPlaces::cuda_devices(const std::string& section) const {
  std::vector<int> devices;
  every(section, [&](const Place& place, bool) { devices.push_back(static_cast<int>(place.device)); });
  return devices_text("cuda", devices);
}

std::string ClusterPlaces::processes(const std::string& section) const {
  std::vector<std::int64_t> hosts;
  every(section, [&](const Place& place, bool first_of_stage) {
    if (first_of_stage) hosts.push_back(place.host);
  });
  return list_text(hosts);
}

}  // namespace maestro
